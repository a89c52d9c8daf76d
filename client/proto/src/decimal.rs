//! Numbers as decimal text, without an allocation.

const DIGITS: [u8; 10] = *b"0123456789";

/// A number as its decimal digits, on the stack.
///
/// Commands carry times to live and fences as text, and writing a command must not allocate.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    /// The digits are at the end.
    digits: [u8; Self::LONGEST],
    start: usize,
}

impl Decimal {
    /// `u64::MAX` has 20 digits.
    const LONGEST: usize = 20;

    /// Writes a number without leading zeros.
    #[must_use]
    pub fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; Self::LONGEST];
        let mut start = Self::LONGEST;
        for (place, digit) in digits.iter_mut().enumerate().rev() {
            *digit = DIGITS[(number % 10) as usize];
            start = place;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    /// The digits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_edges() {
        for number in [0, 1, 9, 10, 99, 100, 999, 1000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            assert_eq!(Decimal::new(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
