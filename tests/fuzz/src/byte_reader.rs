//! Derives choices from bytes.

/// Derives choices from bytes, from the front. After the last byte, every choice is the first.
///
/// One byte decides one thing where possible, so that a small change of the input is a small change of the test.
pub(crate) struct ByteReader<'a> {
    bytes: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// A number below `count`, which is at most 256.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// True with a probability of one in `count`.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    pub(crate) fn pick<'p, T>(&mut self, from: &'p [T]) -> &'p T {
        &from[self.below(from.len())]
    }

    pub(crate) fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(8);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// A number of any size: every bit length is equally likely.
    pub(crate) fn sized_number(&mut self) -> u64 {
        let bits = self.below(65);
        if bits == 0 { 0 } else { self.number() >> (64 - bits) }
    }

    /// The next bytes, at most `count`.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}
