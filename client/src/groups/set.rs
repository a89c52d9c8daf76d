//! Some groups of nodes, each with the manager that knows them.

use crate::Error;
use crate::keys::Keys;
use crate::manager::LockManager;
use crate::settings::{Places, Settings};
use redlock_proto::Rendezvous;
use std::sync::Arc;

/// A group: a name and its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) manager: LockManager,
}

/// Groups of which every resource has one.
#[derive(Clone, Debug)]
pub(crate) struct GroupSet {
    pub(crate) groups: Vec<Group>,
    rendezvous: Rendezvous,
}

impl GroupSet {
    pub(crate) fn new(groups: Vec<Group>) -> Result<Self, Error> {
        let names = groups.iter().map(|group| &*group.name);
        let rendezvous = Rendezvous::of(names).map_err(|misnamed| config(misnamed.to_string()))?;
        for (place, group) in groups.iter().enumerate() {
            for other in groups.iter().take(place) {
                check_apart(other, group)?;
                check_prefixes(other, group)?;
            }
        }
        Ok(Self { groups, rendezvous })
    }

    /// The group of a key, as the nodes know it.
    fn home(&self, key: &[u8]) -> Option<&Group> {
        self.groups.get(self.rendezvous.choose(key))
    }

    /// The group that all of these keys belong to.
    pub(crate) fn home_of_all(&self, keys: &Keys) -> Result<&Group, Error> {
        let mut homes = keys.names().iter().zip(keys.resources()).map(|(key, name)| (self.home(key), name));
        let (Some(home), first) = homes.next().unwrap_or_default() else {
            return Err(Error::invalid("no resource is named"));
        };
        match homes.find(|(other, _)| other.is_none_or(|other| other.name != home.name)) {
            None => Ok(home),
            Some((_, stranger)) => Err(Error::invalid(format!(
                "{} and {} belong to different groups and cannot be one lock; a common part in braces keeps \
                 resources together, as in {{orders}}:1 and {{orders}}:2",
                first.escape_ascii(),
                stranger.escape_ascii()
            ))),
        }
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| *group.name == *name)
    }

    /// Any of the managers: in what concerns keys they are all alike.
    pub(crate) fn any_manager(&self) -> Result<&LockManager, Error> {
        self.groups.first().map(|group| &group.manager).ok_or_else(|| config("no group is named"))
    }

    /// Refuses a set that cannot follow this one in a move.
    pub(crate) fn check_successor(&self, new: &Self) -> Result<(), Error> {
        for old in &self.groups {
            for group in &new.groups {
                check_prefixes(old, group)?;
                if old.name != group.name {
                    check_apart(old, group)?;
                } else if !have_same_nodes(old.manager.settings(), group.manager.settings()) {
                    let name = &group.name;
                    return Err(config(format!(
                        "group {name} has other nodes before the move than after it"
                    )));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn config(what: impl Into<Arc<str>>) -> Error {
    Error::Config(what.into())
}

/// A node of two groups would refuse a resource that moves from the one to the other: it is locked there.
fn check_apart(one: &Group, other: &Group) -> Result<(), Error> {
    let (first, second) = (one.manager.settings(), other.manager.settings());
    let shared = match (&first.places, &second.places) {
        (Places::Memory(nodes), Places::Memory(others)) => {
            nodes.are(others).then(|| first.names.first()).flatten()
        }
        (Places::Servers(_), Places::Servers(_)) => {
            first.names.iter().find(|name| second.names.contains(name))
        }
        _ => None,
    };
    let Some(node) = shared else { return Ok(()) };
    Err(config(format!("{node} is a node of both {} and {}: a node has one group", one.name, other.name)))
}

/// The key decides about the group, so one resource must be one key everywhere.
fn check_prefixes(one: &Group, other: &Group) -> Result<(), Error> {
    if one.manager.settings().key_prefix == other.manager.settings().key_prefix {
        return Ok(());
    }
    Err(config(format!("{} and {} have different key prefixes", one.name, other.name)))
}

fn have_same_nodes(one: &Settings, other: &Settings) -> bool {
    match (&one.places, &other.places) {
        (Places::Memory(nodes), Places::Memory(others)) => nodes.are(others),
        (Places::Servers(_), Places::Servers(_)) => {
            one.names.len() == other.names.len() && one.names.iter().all(|name| other.names.contains(name))
        }
        _ => false,
    }
}
