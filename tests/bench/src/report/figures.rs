//! Medians, ratios and quantiles.

/// The median of some figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// The ratio of a figure between two contenders in each round; the median over all rounds.
pub(crate) fn ratio_of<R>(of: &[R], to: &[R], figure: impl Fn(&R) -> f64) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| figure(of) / figure(to)).collect::<Vec<_>>())
}

/// The quantile of sorted figures; `share` is between 0 and 1.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// The smallest and the largest of some figures.
pub(crate) fn spread(figures: &[f64]) -> (f64, f64) {
    figures.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)))
}
