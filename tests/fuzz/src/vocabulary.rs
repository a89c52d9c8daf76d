//! Generates valid and almost valid commands.

use crate::byte_reader::ByteReader;
use redlock_contract::commands::{COMMANDS, Verb};
use redlock_contract::limits::MAX_FENCE;

/// Few keys, so that commands conflict.
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

pub(crate) fn key(reader: &mut ByteReader<'_>) -> Vec<u8> {
    word(reader, &KEYS)
}

/// A word of a list, or sometimes any bytes.
fn word(reader: &mut ByteReader<'_>, list: &[&[u8]]) -> Vec<u8> {
    let choice = reader.byte();
    if choice >= 250 {
        let length = reader.below(20);
        return reader.take(length).to_vec();
    }
    list[usize::from(choice) % list.len()].to_vec()
}

/// A number as text: from a list, any, or close to the largest fence.
fn number(reader: &mut ByteReader<'_>) -> Vec<u8> {
    match reader.below(4) {
        0 | 1 => word(reader, &NUMBERS),
        2 => reader.sized_number().to_string().into_bytes(),
        _ => (MAX_FENCE - u64::from(reader.byte())).to_string().into_bytes(),
    }
}

/// The arguments of a command, its name first.
pub(crate) fn command(reader: &mut ByteReader<'_>) -> Vec<Vec<u8>> {
    let spec = reader.pick(&COMMANDS);
    let mut argv = vec![spec.name.as_bytes().to_vec()];
    if reader.one_in(32) {
        argv[0].make_ascii_lowercase();
    }
    arguments(reader, spec.verb, &mut argv);
    // One mutation may make the valid command invalid.
    match reader.below(16) {
        12 => {
            let length = reader.below(argv.len() + 1);
            argv.truncate(length);
        }
        13 => argv.push(word(reader, &OPTIONS)),
        14 => argv.push(number(reader)),
        15 => {
            let place = reader.below(argv.len());
            argv[place] = word(reader, &OWNERS);
        }
        _ => {}
    }
    argv
}

/// The arguments of this command, its name first.
pub(crate) fn command_of(reader: &mut ByteReader<'_>, verb: Verb) -> Vec<Vec<u8>> {
    let mut argv = vec![verb.name().as_bytes().to_vec()];
    arguments(reader, verb, &mut argv);
    argv
}

fn arguments(reader: &mut ByteReader<'_>, verb: Verb, argv: &mut Vec<Vec<u8>>) {
    match verb {
        Verb::Node => return,
        Verb::Dataset | Verb::Mark => {
            argv.extend([number(reader), number(reader)]);
            return;
        }
        Verb::Admit => {
            argv.extend([word(reader, &OWNERS), number(reader), number(reader)]);
            if reader.one_in(2) {
                argv.push(b"FAR".to_vec());
                argv.push(word(
                    reader,
                    &[b"none", b"7:4611686018427387904", b"7:9,8:1099511627776", b"7:", b""],
                ));
            }
            return;
        }
        Verb::Macquire | Verb::Mextend | Verb::Mrelease => {
            let keys = 1 + reader.below(4);
            let said = if reader.one_in(16) { number(reader) } else { keys.to_string().into_bytes() };
            argv.push(said);
            argv.extend((0..keys).map(|_| key(reader)));
        }
        Verb::Acquire | Verb::Extend | Verb::Release | Verb::Inspect | Verb::Apply => argv.push(key(reader)),
        Verb::Break => {
            argv.push(key(reader));
            if reader.one_in(4) {
                argv.push(b"FENCE".to_vec());
                argv.push(number(reader));
            }
            return;
        }
    }
    if verb == Verb::Inspect {
        return;
    }
    argv.push(word(reader, &OWNERS));
    match verb {
        Verb::Release | Verb::Mrelease => {}
        Verb::Apply => argv.extend([number(reader), number(reader)]),
        _ => argv.push(number(reader)),
    }
    if matches!(verb, Verb::Acquire | Verb::Macquire | Verb::Apply) && reader.one_in(4) {
        argv.push(if reader.one_in(8) { b"shared".to_vec() } else { b"SHARED".to_vec() });
    }
    for _ in 0..[0, 0, 0, 1, 1, 2, 3][reader.below(7)] {
        argv.push(word(reader, &OPTIONS));
        argv.push(if reader.one_in(2) { number(reader) } else { word(reader, &OWNERS) });
    }
}
