//! The inputs of the corpus, and new inputs derived from them.

use fastrand::Rng;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{fs, panic};

use crate::FuzzTarget;

/// Tokens with a meaning to a target; mutations insert them. libFuzzer gets the same file.
static TOKENS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| tokens(include_str!("../tokens.dict")));

/// The length of the longest derived input, in bytes.
const LONGEST: usize = 1 << 11;

/// The corpus of a target, in a fixed order.
///
/// # Panics
/// If the corpus is empty or cannot be read.
#[must_use]
pub fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let listed = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        listed.map(|entry| entry.expect("the corpus can be listed").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no inputs in {}", folder.display());
    paths.iter().map(|path| fs::read(path).expect("an input can be read")).collect()
}

/// Runs a target with its corpus and `count` new inputs. Returns the first input that makes it panic, and the
/// message.
pub fn first_failure(
    target: FuzzTarget,
    kept: &[Vec<u8>],
    count: usize,
    seed: u64,
) -> Option<(Vec<u8>, String)> {
    let mut rng = Rng::with_seed(seed);
    let made = (0..count).map(|_| make(&mut rng, kept));
    kept.iter().cloned().chain(made).find_map(|input| {
        let outcome = panic::catch_unwind(|| target(&input));
        let said = outcome.err().map(|said| match said.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => {
                said.downcast_ref::<&str>().map_or_else(|| "a panic".to_owned(), |text| (*text).to_owned())
            }
        });
        said.map(|said| (input, said))
    })
}

/// A new input: sometimes random bytes, mostly an input of the corpus with a few mutations.
fn make(rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8> {
    let Some(base) = rng.choice(kept).filter(|_| rng.u8(..8) > 0) else {
        let length = rng.usize(..256);
        return (0..length).map(|_| rng.u8(..)).collect();
    };
    let mut input = base.clone();
    for _ in 0..rng.usize(1..8) {
        change(rng, &mut input, kept);
    }
    input.truncate(LONGEST);
    input
}

fn change(rng: &mut Rng, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
    let place = rng.usize(..=input.len());
    let end = rng.usize(place..=input.len());
    match rng.u8(..8) {
        0 if place < input.len() => input[place] ^= 1 << rng.u8(..8),
        1 if place < input.len() => input[place] = rng.u8(..),
        2 => input.insert(place, rng.u8(..)),
        3 => drop(input.drain(place..end)),
        4 => {
            let copy = input[place..end].to_vec();
            let at = rng.usize(..=input.len());
            drop(input.splice(at..at, copy));
        }
        5 => {
            let other = rng.choice(kept).map_or(&[][..], Vec::as_slice);
            let from = rng.usize(..=other.len());
            drop(input.splice(place.., other[from..].iter().copied()));
        }
        6 if place < input.len() => input[place] = input[place].wrapping_add(rng.u8(..3).wrapping_sub(1)),
        _ => {
            let token = rng.choice(&*TOKENS).map_or(&[][..], Vec::as_slice);
            let end = if rng.bool() { place } else { (place + token.len()).min(input.len()) };
            drop(input.splice(place..end, token.iter().copied()));
        }
    }
}

/// The tokens of a dictionary: one quoted token a line, some bytes as `\x` and two hexadecimal digits.
fn tokens(dictionary: &str) -> Vec<Vec<u8>> {
    let quoted = dictionary.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let unescaped = quoted.map(|text| {
        let mut pieces = text.split("\\x");
        let mut token = pieces.next().unwrap_or_default().as_bytes().to_vec();
        for piece in pieces {
            let (digits, plain) = piece.split_at(2);
            token.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
            token.extend_from_slice(plain.as_bytes());
        }
        token
    });
    unescaped.collect()
}
