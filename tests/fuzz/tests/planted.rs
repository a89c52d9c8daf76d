//! The targets find planted mistakes with no more inputs than the gate uses for the correct code.

use redlock_fuzz::{inputs, planted};

#[test]
fn every_planted_mistake_is_found() {
    for planted in &planted::ALL {
        let (name, target) = planted.target;
        let found = inputs::first_failure(target, &inputs::kept(planted.of), 20_000, 1);
        let (_, said) = found.unwrap_or_else(|| panic!("{name}: the target found no mistake"));
        assert!(said.contains(planted.found), "{name}: the target failed with another message: {said}");
    }
}
