//! Numbers as decimal digits.

/// Decimal digits of a number.
pub(crate) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = [0; 20];
        let mut start = digits.len();
        for place in digits.iter_mut().rev() {
            *place = b'0'.wrapping_add((number % 10) as u8);
            number /= 10;
            start = start.saturating_sub(1);
            if number == 0 {
                break;
            }
        }
        Decimal { digits, start }
    }

    pub(crate) fn digits(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}
