//! Provides memory for passwords that is never swapped, is excluded from core dumps, and is wiped
//! after use.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use zeroize::{Zeroize, Zeroizing};

/// Length in bytes of a mapping: one page of 4 kB. Larger pages are used in part.
const PAGE_LENGTH: usize = 4096;

/// Length in bytes of one entry: two bytes for the length, then the password.
const CELL_LENGTH: usize = 272;
const CELLS: usize = PAGE_LENGTH / CELL_LENGTH;

/// Maximum length of a cached password; servers accept no longer ones for `caching_sha2_password`.
pub const PASSWORD_LENGTH_MAX: usize = 256;

/// True after the warning about a failed lock was logged.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Passwords, identified by number.
#[derive(Debug, Default)]
pub struct LockedMemory {
    pages: Vec<Page>,
    free: Vec<usize>,
}

impl LockedMemory {
    /// Stores a password. Returns `None` if the password is too long or memory is exhausted.
    pub fn put(&mut self, password: &[u8]) -> Option<usize> {
        if password.len() > PASSWORD_LENGTH_MAX {
            return None;
        }
        if self.free.is_empty() {
            let page = Page::new().ok()?;
            let first = self.pages.len() * CELLS;
            self.pages.push(page);
            self.free.extend((first..first + CELLS).rev());
        }
        let number = self.free.pop()?;
        let cell = self.cell(number)?;
        let (length, rest) = cell.split_first_chunk_mut::<2>()?;
        *length = u16::try_from(password.len()).ok()?.to_le_bytes();
        rest.get_mut(..password.len())?.copy_from_slice(password);
        Some(number)
    }

    /// Returns a copy, which should be dropped as early as possible.
    pub fn get(&mut self, number: usize) -> Option<Zeroizing<Vec<u8>>> {
        let cell = self.cell(number)?;
        let (length, rest) = cell.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        Some(Zeroizing::new(rest.get(..length)?.to_vec()))
    }

    /// Wipes a password and frees its entry.
    pub fn drop(&mut self, number: usize) {
        if let Some(cell) = self.cell(number) {
            cell.zeroize();
            self.free.push(number);
        }
    }

    fn cell(&mut self, number: usize) -> Option<&mut [u8]> {
        let page = self.pages.get_mut(number / CELLS)?;
        let start = number % CELLS * CELL_LENGTH;
        page.bytes().get_mut(start..start + CELL_LENGTH)
    }
}

/// Memory page mapped from the system, unmapped on drop.
#[derive(Debug)]
struct Page(NonNull<u8>);

#[expect(
    unsafe_code,
    reason = "no other code has the memory that the pointer leads to"
)]
// SAFETY: the mapping belongs to this value alone, even if moved to another thread.
unsafe impl Send for Page {}

impl Page {
    fn new() -> io::Result<Self> {
        #[expect(unsafe_code, reason = "the system is asked for memory")]
        // SAFETY: a new anonymous mapping overlaps no other memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_LENGTH,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(start.cast::<u8>()).map(Page);
        let page = page.ok_or(io::ErrorKind::OutOfMemory)?;
        page.lock();
        Ok(page)
    }

    fn lock(&self) {
        let start = self.0.as_ptr().cast::<libc::c_void>();
        #[expect(unsafe_code, reason = "sets how the system treats the memory")]
        // SAFETY: the mapping belongs to this value and has this length.
        let failed = unsafe {
            // A forked child receives no copy of the page; old kernels reject MADV_DONTFORK.
            libc::madvise(start, PAGE_LENGTH, libc::MADV_DONTFORK);
            libc::madvise(start, PAGE_LENGTH, libc::MADV_DONTDUMP);
            libc::mlock(start, PAGE_LENGTH) != 0
        };
        if failed && !IS_TOLD.swap(true, Relaxed) {
            let why = io::Error::last_os_error();
            tracing::warn!(
                "cannot lock memory for caching_sha2_password passwords, they may be written to \
                 swap: {why}; raise the limit (ulimit -l, LimitMEMLOCK=)"
            );
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        #[expect(unsafe_code, reason = "the memory is seen as bytes")]
        // SAFETY: the mapping has this length, is zeroed by the system, lives as long as `self`,
        // and is borrowed with it.
        unsafe {
            std::slice::from_raw_parts_mut(self.0.as_ptr(), PAGE_LENGTH)
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.bytes().zeroize();
        #[expect(unsafe_code, reason = "the memory goes back to the system")]
        // SAFETY: the page was mapped with this length, and no other reference to it exists.
        unsafe {
            libc::munmap(self.0.as_ptr().cast(), PAGE_LENGTH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_kept_apart_and_given_back() {
        let mut locked = LockedMemory::default();
        let words: Vec<String> = (0..100).map(|number| format!("word {number}")).collect();
        let put = |locked: &mut LockedMemory, word: &String| locked.put(word.as_bytes()).unwrap();
        let numbers: Vec<usize> = words.iter().map(|word| put(&mut locked, word)).collect();
        for (word, number) in words.iter().zip(&numbers) {
            let got = locked.get(*number).unwrap();
            assert_eq!(got.as_slice(), word.as_bytes());
        }
        let pages = locked.pages.len();
        numbers.iter().for_each(|number| locked.drop(*number));
        assert_eq!(locked.get(numbers[0]).unwrap().as_slice(), b"", "wiped");
        words.iter().for_each(|word| {
            put(&mut locked, word);
        });
        assert_eq!(locked.pages.len(), pages, "used again");
    }

    #[test]
    fn what_no_server_would_take_is_not_kept() {
        let mut locked = LockedMemory::default();
        assert!(locked.put(&[b'x'; PASSWORD_LENGTH_MAX]).is_some());
        assert!(locked.put(&[b'x'; PASSWORD_LENGTH_MAX + 1]).is_none());
        assert!(locked.get(5_000).is_none());
    }
}
