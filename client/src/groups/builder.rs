//! Groups before they are put together.

use super::LockGroups;
use super::set::{Group, GroupSet};
use crate::Error;
use crate::manager::LockManager;

/// Describes [`LockGroups`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is built before build()"]
pub struct GroupsBuilder {
    groups: Vec<Group>,
}

impl GroupsBuilder {
    /// A group of nodes, and the manager that knows them.
    ///
    /// The name decides which resources the group has, together with the names of the others; the order of the
    /// groups and the addresses of their nodes do not. So every client must use the same names for the same
    /// nodes, and a name is never changed: to rename a group is to move all of its resources.
    pub fn group(mut self, name: impl AsRef<str>, manager: LockManager) -> Self {
        self.groups.push(Group { name: name.as_ref().into(), manager });
        self
    }

    /// Puts the groups together. Needs no runtime and touches no network.
    ///
    /// # Errors
    /// [`Error::Config`] for no group, a group without a name, two with the same, a node in two groups, and groups
    /// whose managers have different key prefixes.
    pub fn build(self) -> Result<LockGroups, Error> {
        Ok(LockGroups::steady(GroupSet::new(self.groups)?))
    }
}
