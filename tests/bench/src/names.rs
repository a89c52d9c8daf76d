//! Names of locks and owners, of usual lengths.

/// A key of 17 bytes, a usual length for lock names.
pub(crate) fn key(number: usize) -> String {
    format!("lock:{number:012}")
}

/// An owner in the form of a UUID, 36 bytes, as most clients send. Its digits are scattered, not random.
pub(crate) fn owner(number: usize) -> String {
    let scattered = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let digits = format!("{scattered:032x}");
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}
