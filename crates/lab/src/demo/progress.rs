//! Displays the demonstration's progress: one live line on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write, stdout};
use std::time::Instant;

pub(crate) struct Progress {
    live: bool,
    began: Instant,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            live: stdout().is_terminal(),
            began: Instant::now(),
        }
    }

    /// Prints a permanent line.
    pub(crate) fn event(&self, text: &str) {
        self.clear();
        println!("{:5.1} s  {text}", self.began.elapsed().as_secs_f64());
    }

    /// Replaces the live line with the current state; prints nothing unless on a terminal.
    pub(crate) fn now(&self, text: &str) {
        if self.live {
            print!(
                "\r\x1b[K{:5.1} s  {text}",
                self.began.elapsed().as_secs_f64()
            );
            let _ = stdout().flush();
        }
    }

    pub(crate) fn clear(&self) {
        if self.live {
            print!("\r\x1b[K");
            let _ = stdout().flush();
        }
    }
}
