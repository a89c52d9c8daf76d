//! Names of locks and owners, as long as they tend to be.

/// A key as long as lock names tend to be: 17 bytes.
pub(crate) fn key(number: usize) -> String {
    format!("lock:{number:012}")
}

/// An owner as most clients make it: a UUID of 36 bytes. Its digits are scattered, not random.
pub(crate) fn owner(number: usize) -> String {
    let scattered = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let digits = format!("{scattered:032x}");
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}
