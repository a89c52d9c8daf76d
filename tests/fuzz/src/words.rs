//! Commands, well formed and almost.

use crate::tape::Tape;
use redlock_core::catalog::{COMMANDS, Verb};
use redlock_core::fence::MAX_FENCE;

/// Few, so that commands meet.
pub(crate) const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"", &[0xff; 300]];
const OWNERS: [&[u8]; 6] = [b"alice", b"bob", b"0123456789abcdef0123456789abcdef", &[7; 256], &[7; 257], b""];
const OPTIONS: [&[u8]; 8] =
    [b"FENCE", b"LABEL", b"fence", b"label", b"WAIT", b"HELD", b"EXT", b"5bd60c41-f09a-77e2"];
const NUMBERS: [&[u8]; 12] = [
    b"1",
    b"1000",
    b"30000",
    b"0",
    b"86400000",
    b"86400001",
    b"01",
    b"-1",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
];

pub(crate) fn key(tape: &mut Tape<'_>) -> Vec<u8> {
    word(tape, &KEYS)
}

/// A word of a list, or now and then any bytes at all.
fn word(tape: &mut Tape<'_>, list: &[&[u8]]) -> Vec<u8> {
    let choice = tape.byte();
    if choice >= 250 {
        let length = tape.below(20);
        return tape.take(length).to_vec();
    }
    list[usize::from(choice) % list.len()].to_vec()
}

/// A number as a word: of the list, any, or close to the largest fence.
fn number(tape: &mut Tape<'_>) -> Vec<u8> {
    match tape.below(4) {
        0 | 1 => word(tape, &NUMBERS),
        2 => tape.sized_number().to_string().into_bytes(),
        _ => (MAX_FENCE - u64::from(tape.byte())).to_string().into_bytes(),
    }
}

/// The words of a command, its name first.
pub(crate) fn command(tape: &mut Tape<'_>) -> Vec<Vec<u8>> {
    let spec = tape.pick(&COMMANDS);
    let mut argv = vec![spec.name.as_bytes().to_vec()];
    if tape.one_in(32) {
        argv[0].make_ascii_lowercase();
    }
    arguments(tape, spec.verb, &mut argv);
    // What is well formed so far may be spoiled in one place.
    match tape.below(16) {
        12 => {
            let length = tape.below(argv.len() + 1);
            argv.truncate(length);
        }
        13 => argv.push(word(tape, &OPTIONS)),
        14 => argv.push(number(tape)),
        15 => {
            let place = tape.below(argv.len());
            argv[place] = word(tape, &OWNERS);
        }
        _ => {}
    }
    argv
}

/// The words of a command of this kind, its name first.
pub(crate) fn command_of(tape: &mut Tape<'_>, verb: Verb) -> Vec<Vec<u8>> {
    let mut argv = vec![verb.name().as_bytes().to_vec()];
    arguments(tape, verb, &mut argv);
    argv
}

fn arguments(tape: &mut Tape<'_>, verb: Verb, argv: &mut Vec<Vec<u8>>) {
    match verb {
        Verb::Node => return,
        Verb::Dataset | Verb::Mark => {
            argv.extend([number(tape), number(tape)]);
            return;
        }
        Verb::Admit => {
            argv.extend([word(tape, &OWNERS), number(tape), number(tape)]);
            return;
        }
        Verb::Macquire | Verb::Mextend | Verb::Mrelease => {
            let keys = 1 + tape.below(4);
            let said = if tape.one_in(16) { number(tape) } else { keys.to_string().into_bytes() };
            argv.push(said);
            argv.extend((0..keys).map(|_| key(tape)));
        }
        Verb::Acquire | Verb::Extend | Verb::Release | Verb::Inspect | Verb::Apply => argv.push(key(tape)),
    }
    if verb == Verb::Inspect {
        return;
    }
    argv.push(word(tape, &OWNERS));
    match verb {
        Verb::Release | Verb::Mrelease => {}
        Verb::Apply => argv.extend([number(tape), number(tape)]),
        _ => argv.push(number(tape)),
    }
    for _ in 0..[0, 0, 0, 1, 1, 2, 3][tape.below(7)] {
        argv.push(word(tape, &OPTIONS));
        argv.push(if tape.one_in(2) { number(tape) } else { word(tape, &OWNERS) });
    }
}
