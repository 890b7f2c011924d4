//! Maps of user and group ids between namespaces.

/// The ids of users, or of groups, in a user namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdMap {
    /// Ranges: first id inside, first id of the kernel, number of ids.
    pub ranges: Vec<(u32, u32, u32)>,
    /// The id for all others.
    pub others: u32,
}

/// A user namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserIds {
    /// The map of user ids.
    pub users: IdMap,
    /// The map of group ids.
    pub groups: IdMap,
}

impl Default for UserIds {
    /// The initial namespace: the kernel's own numbers.
    fn default() -> Self {
        let initial = IdMap {
            ranges: vec![(0, 0, u32::MAX)],
            others: u32::MAX,
        };
        UserIds {
            users: initial.clone(),
            groups: initial,
        }
    }
}
