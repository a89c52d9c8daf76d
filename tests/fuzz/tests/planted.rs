//! Planted mistakes are found with no more inputs than the gate spends on what is right.

use redlock_fuzz::{inputs, planted};

#[test]
fn every_planted_mistake_is_found() {
    for planted in &planted::ALL {
        let (name, target) = planted.target;
        let found = inputs::first_failure(target, &inputs::kept(planted.of), 20_000, 1);
        let (_, said) = found.unwrap_or_else(|| panic!("{name} was not found"));
        assert!(said.contains(planted.found), "{name} was found, but not as such: {said}");
    }
}
