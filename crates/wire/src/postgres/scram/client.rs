//! The client's side of SCRAM, with a password or with the keys from a client's own login.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::{ITERATIONS_MAX, Keys, MECHANISM, MECHANISM_PLUS, Nonce, ScramError};
use super::{attribute, decode_key, hmac, is_nonce, sha256, xor};

/// Secret with which Evenkeel proves its identity.
#[derive(Debug, Clone, Copy)]
pub enum Proof<'a> {
    /// The password: costs [`Keys::of_password`].
    Password(&'a [u8]),
    /// The keys: valid for servers with the identical verifier.
    Keys(&'a Keys),
}

/// State after the first message: the server's challenge is expected.
#[derive(Debug)]
pub struct ClientStart {
    header: &'static [u8],
    binding: Vec<u8>,
    /// First message without its GS2 header.
    bare: Vec<u8>,
    nonce: String,
}

/// State after the proof: the server's proof is expected.
#[derive(Debug)]
pub struct ClientFinal {
    server_signature: [u8; 32],
}

impl ClientStart {
    /// Begins an exchange. `binding` is the hash of the server's certificate if the connection uses
    /// TLS; `plus_offered` is true if the server offered the PLUS mechanism.
    #[must_use]
    pub fn new(binding: Option<&[u8]>, plus_offered: bool, nonce: Nonce) -> Self {
        let (header, binding): (&[u8], &[u8]) = match (binding, plus_offered) {
            (Some(binding), true) => (b"p=tls-server-end-point,,", binding),
            (Some(_), false) => (b"y,,", &[]),
            (None, _) => (b"n,,", &[]),
        };
        let nonce = STANDARD.encode(nonce);
        ClientStart {
            header,
            binding: binding.to_vec(),
            // Servers use the user from the startup packet; the name here is empty, as in libpq.
            bare: [b"n=,r=", nonce.as_bytes()].concat(),
            nonce,
        }
    }

    /// Returns the chosen mechanism.
    #[must_use]
    pub fn mechanism(&self) -> &'static [u8] {
        if self.header.starts_with(b"p") {
            MECHANISM_PLUS
        } else {
            MECHANISM
        }
    }

    /// Returns the first message.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        [self.header, &self.bare].concat()
    }

    /// Processes the server's challenge, and returns the message with the proof.
    ///
    /// # Errors
    ///
    /// Fails if the challenge is malformed or not acceptable.
    pub fn challenge(
        self,
        challenge: &[u8],
        proof: Proof<'_>,
    ) -> Result<(ClientFinal, Vec<u8>), ScramError> {
        let (nonce, salt, iterations) = read_challenge(challenge).ok_or(ScramError::Malformed)?;
        let own = self.nonce.as_bytes();
        if !nonce.starts_with(own) || nonce.len() <= own.len() || !is_nonce(nonce) {
            return Err(ScramError::Nonce);
        }
        let keys = match proof {
            Proof::Keys(keys) => keys.clone(),
            Proof::Password(_) if iterations > ITERATIONS_MAX => {
                return Err(ScramError::TooManyIterations);
            }
            Proof::Password(password) => Keys::of_password(password, &salt, iterations),
        };
        let bound = STANDARD.encode([self.header, &self.binding].concat());
        let mut message = [b"c=", bound.as_bytes(), b",r=", nonce].concat();
        let signed: [&[u8]; 5] = [&self.bare, b",", challenge, b",", &message];
        let mut proof = hmac(&sha256(&*keys.client), &signed);
        xor(&mut proof, keys.client.as_slice());
        let server_signature = hmac(&*keys.server, &signed);
        message.extend_from_slice(b",p=");
        message.extend_from_slice(STANDARD.encode(proof).as_bytes());
        Ok((ClientFinal { server_signature }, message))
    }
}

impl ClientFinal {
    /// Verifies the server's last message.
    ///
    /// # Errors
    ///
    /// Fails with [`ScramError::WrongServer`] if the server does not know the verifier.
    pub fn finish(self, message: &[u8]) -> Result<(), ScramError> {
        if message.starts_with(b"e=") {
            return Err(ScramError::WrongPassword);
        }
        let (signature, _) = attribute(message, b'v').ok_or(ScramError::Malformed)?;
        let signature = decode_key(signature).ok_or(ScramError::Malformed)?;
        match signature.ct_eq(&self.server_signature).into() {
            true => Ok(()),
            false => Err(ScramError::WrongServer),
        }
    }
}

fn read_challenge(challenge: &[u8]) -> Option<(&[u8], Vec<u8>, u32)> {
    let (nonce, rest) = attribute(challenge, b'r')?;
    let (salt, rest) = attribute(rest, b's')?;
    let (iterations, _) = attribute(rest, b'i')?;
    let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?;
    let iterations = str::from_utf8(iterations).ok()?.parse().ok();
    Some((nonce, salt, iterations.filter(|count| *count > 0)?))
}
