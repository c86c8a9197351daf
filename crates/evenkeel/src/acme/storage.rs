//! Keeps the account, certificates and state of orders on disk. Balancers may share the directory.
//!
//! Each file is replaced as a whole, and only its owner may read it: it may contain keys.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use evenkeel_config::plan::AcmePlan;
use evenkeel_tls::TlsIdentity;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::challenge::Answer;
use super::schedule::Attempts;

/// Permissions of a directory: for the owner only.
const DIRECTORY_MODE: u32 = 0o700;

/// Permissions of a file: for the owner only.
const FILE_MODE: u32 = 0o600;

/// Directory of what has come from one authority.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    root: PathBuf,
}

/// Right to order certificates. It ends with this value, and with the process.
#[derive(Debug)]
pub(super) struct Ownership {
    _lock: File,
}

impl Storage {
    /// Returns the storage for the authority of a plan.
    pub(crate) fn new(plan: &AcmePlan) -> Self {
        Self {
            root: plan.storage.join(folder(&plan.directory)),
        }
    }

    /// Returns the directory.
    pub(super) fn path(&self) -> &Path {
        &self.root
    }

    /// Makes the directories that are missing.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE);
        builder.create(self.certificates())?;
        builder.create(self.challenges())
    }

    /// Takes the right to order certificates. `None`: another process has it. The system releases
    /// it when that process ends, however it ends.
    pub(super) fn own(&self) -> io::Result<Option<Ownership>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.mode(FILE_MODE).open(self.root.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Ownership { _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns random bytes that all processes with this storage share. The first one makes them.
    pub(crate) fn secret(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        self.prepare()?;
        let path = self.root.join("secret");
        if let Some(secret) = if_found(fs::read(&path))? {
            return Ok(Zeroizing::new(secret));
        }
        let mut secret = Zeroizing::new(vec![0; 32]);
        File::open("/dev/urandom")?.read_exact(&mut secret)?;
        let own = self.root.join(format!("secret.{}", std::process::id()));
        write(&own, &secret)?;
        // Another process may be faster: its secret stays.
        let linked = fs::hard_link(&own, &path);
        fs::remove_file(&own)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::read(&path).map(Zeroizing::new),
        }
    }

    /// Returns the account as it was stored. `None`: there is none.
    pub(super) fn account<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        read_json(&self.root.join("account.json"))
    }

    /// Stores the account.
    pub(super) fn set_account(&self, account: &impl Serialize) -> io::Result<()> {
        write_json(&self.root.join("account.json"), account)
    }

    /// Returns the certificate of a name. `None`: there is none.
    pub(crate) fn certificate(&self, name: &str) -> io::Result<Option<TlsIdentity>> {
        let path = self.pem(name);
        let Some(pem) = if_found(fs::read(&path))? else {
            return Ok(None);
        };
        let identity = TlsIdentity::from_pem("stored", &pem, &pem);
        let identity = identity.map_err(|error| {
            let message = format!("{}: {error}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        Ok(Some(identity).filter(|identity| identity.has_name(name)))
    }

    /// Returns when the certificate of a name was stored.
    pub(super) fn certificate_time(&self, name: &str) -> Option<SystemTime> {
        fs::metadata(self.pem(name)).ok()?.modified().ok()
    }

    /// Stores a certificate with its chain and key, as one file: a pair cannot be torn.
    pub(super) fn set_certificate(&self, name: &str, pem: &str) -> io::Result<()> {
        write(&self.pem(name), pem.as_bytes())
    }

    /// Returns the state of the orders for a name.
    pub(super) fn attempts(&self, name: &str) -> io::Result<Attempts> {
        Ok(read_json(&self.state(name))?.unwrap_or_default())
    }

    /// Stores the state of the orders for a name.
    pub(super) fn set_attempts(&self, name: &str, attempts: &Attempts) -> io::Result<()> {
        write_json(&self.state(name), attempts)
    }

    /// Returns the answers to the challenges in progress, by name.
    pub(super) fn answers(&self) -> io::Result<BTreeMap<String, Answer>> {
        let mut answers = BTreeMap::new();
        for entry in fs::read_dir(self.challenges())? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let Some(name) = name.strip_suffix(".json") else {
                continue;
            };
            // One that was removed meanwhile is over.
            if let Some(answer) = read_json(&path)? {
                answers.insert(name.to_owned(), answer);
            }
        }
        Ok(answers)
    }

    /// Stores the answer to a challenge for a name.
    pub(super) fn set_answer(&self, name: &str, answer: &Answer) -> io::Result<()> {
        write_json(&self.challenge(name), answer)
    }

    /// Removes the answer for a name.
    pub(super) fn remove_answer(&self, name: &str) -> io::Result<()> {
        if_found(fs::remove_file(self.challenge(name))).map(drop)
    }

    fn certificates(&self) -> PathBuf {
        self.root.join("certificates")
    }

    fn challenges(&self) -> PathBuf {
        self.root.join("challenges")
    }

    fn pem(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.pem"))
    }

    fn state(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.json"))
    }

    fn challenge(&self, name: &str) -> PathBuf {
        self.challenges().join(format!("{name}.json"))
    }
}

/// Returns the name of the folder of an authority: its URL with `_` for what is not fit for a path.
fn folder(directory: &str) -> String {
    let rest = directory.strip_prefix("https://").unwrap_or(directory);
    let fit = |c: char| match c.is_ascii_alphanumeric() || matches!(c, '.' | '-') {
        true => c,
        false => '_',
    };
    // A folder of two dots would be another one.
    rest.trim_start_matches('.').chars().map(fit).collect()
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = if_found(fs::read(path))? else {
        return Ok(None);
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write(path, &serde_json::to_vec_pretty(value)?)
}

/// Replaces a file as a whole, also if the machine fails meanwhile.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let new = path.with_added_extension("new");
    if_found(fs::remove_file(&new))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    let mut file = options.open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

/// Returns `None` for a file that does not exist.
fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn storage(directory: &Path) -> Storage {
        let storage = Storage::new(&AcmePlan {
            storage: directory.join("acme"),
            ..AcmePlan::default()
        });
        storage.prepare().unwrap();
        storage
    }

    #[test]
    fn each_authority_has_a_folder() {
        let lets_encrypt = "https://acme-v02.api.letsencrypt.org/directory";
        assert_eq!(
            folder(lets_encrypt),
            "acme-v02.api.letsencrypt.org_directory"
        );
        assert_eq!(folder("https://[::1]:14000/dir"), "___1__14000_dir");
        assert_eq!(folder("https://../.."), "_..");
    }

    #[test]
    fn one_owner_has_the_right_to_order() {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage(directory.path());
        let owner = storage.own().unwrap();
        assert!(owner.is_some());
        assert!(storage.own().unwrap().is_none());
        drop(owner);
        assert!(storage.own().unwrap().is_some());
    }

    #[test]
    fn a_secret_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let secret = storage(directory.path()).secret().unwrap();
        assert_eq!(secret.len(), 32);
        assert_ne!(*secret, vec![0; 32]);
        assert_eq!(storage(directory.path()).secret().unwrap(), secret);
    }

    #[test]
    fn files_are_for_the_owner_only_and_outlive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage(directory.path());
        let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        assert!(storage.certificate("shop.example").unwrap().is_none());
        storage.set_certificate("shop.example", &pem).unwrap();
        storage.set_certificate("other.example", &pem).unwrap();
        let found = storage.certificate("shop.example").unwrap();
        assert!(found.is_some_and(|one| one.has_name("shop.example")));
        let other = storage.certificate("other.example").unwrap();
        assert!(other.is_none(), "a certificate of another name");

        let attempts = Attempts::default().failed(100, "no route".to_owned());
        storage.set_attempts("shop.example", &attempts).unwrap();
        assert_eq!(storage.attempts("shop.example").unwrap(), attempts);
        let none = storage.attempts("other.example").unwrap();
        assert_eq!(none, Attempts::default());

        let answer = Answer::Http {
            token: "abc".to_owned(),
            content: "abc.key".to_owned(),
        };
        storage.set_answer("shop.example", &answer).unwrap();
        let answers = storage.answers().unwrap();
        assert_eq!(answers.get("shop.example"), Some(&answer));
        storage.remove_answer("shop.example").unwrap();
        storage.remove_answer("shop.example").unwrap();
        assert!(storage.answers().unwrap().is_empty());

        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&storage.pem("shop.example")), 0o600);
        assert_eq!(mode(storage.path()), 0o700);
        let certificates = fs::read_dir(storage.certificates()).unwrap();
        assert_eq!(certificates.count(), 3, "no temporary file is left");
    }
}
