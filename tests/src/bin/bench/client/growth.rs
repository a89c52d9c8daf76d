//! What more nodes cost: one to nine of them, one task.

use std::time::Duration;

use super::nodes::Nodes;
use super::round::{Rhythm, Round, ratio, take_turns, typical};
use super::stage::Stage;
use super::{Pair, SHORT};
use crate::figures::{median, table, verdict};

const COUNTS: [usize; 5] = [1, 3, 5, 7, 9];
const RHYTHM: Rhythm = Rhythm { time: Duration::from_millis(150), ..SHORT };

pub(crate) fn measure(stage: &Stage, nodes: &Nodes) {
    let turns: Vec<_> = COUNTS
        .iter()
        .flat_map(|count| {
            let choice: Vec<usize> = (0..*count).collect();
            Pair::connect(stage, nodes, &choice).turns(stage, nodes, 1, &choice)
        })
        .collect();
    let rounds = take_turns("one to nine nodes", &turns, RHYTHM);
    // The loop and ours alternate, a pair for each count of nodes.
    let pairs: Vec<&[Vec<Round>]> = rounds.chunks(2).collect();
    let growth = |count: usize, who: usize| ratio(&pairs[count][who], &pairs[0][who], |round| round.p50_us);
    let rows: Vec<Vec<String>> = pairs
        .iter()
        .enumerate()
        .map(|(count, pair)| {
            vec![
                COUNTS[count].to_string(),
                format!("{:.1}", typical(&pair[0], |round| round.p50_us)),
                format!("{:.1}", typical(&pair[1], |round| round.p50_us)),
                format!("{:.3}", ratio(&pair[1], &pair[0], |round| round.p50_us)),
                format!("{:.2}", growth(count, 0)),
                format!("{:.2}", growth(count, 1)),
            ]
        })
        .collect();
    println!("\nOne cycle of one task over the number of nodes, p50; growth is against one node; {RHYTHM}");
    table(
        &["nodes", "the loop us", "redlock-client us", "x loop", "growth of the loop", "of redlock-client"],
        &rows,
    );
    for count in 1..COUNTS.len() {
        let [by_hand, ours] = [0, 1].map(|who| -> Vec<f64> {
            let each = pairs[count][who].iter().zip(&pairs[0][who]);
            each.map(|(many, one)| many.p50_us / one.p50_us).collect()
        });
        let relative: Vec<f64> = ours.iter().zip(&by_hand).map(|(ours, by_hand)| ours / by_hand).collect();
        let what = format!("{} nodes: growth from one node, against the loop's growth", COUNTS[count]);
        verdict(&what, median(&relative), 1.0);
    }
}
