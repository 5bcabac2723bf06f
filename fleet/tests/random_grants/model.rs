//! The naive reading: a list of who has which role where, walked from the beginning for every question.

use std::collections::BTreeSet;

use api::pb::platform::app::v1::FragmentVisibility;

/// What a permission is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Organization,
    Location,
    Machine,
}

use About::{Location as L, Machine as M, Organization as O};

/// Every permission, what it is about, and whether an operator has it: of what reads all but secrets, and in addition to
/// control machines, list data sets and read packages. An owner has all.
pub(super) const TABLE: [(&str, About, bool); 35] = [
    ("read_organization", O, true),
    ("write_organization", O, false),
    ("read_fragment", O, true),
    ("write_fragment", O, false),
    ("read_location", L, true),
    ("write_location", L, false),
    ("read_location_secret", L, false),
    ("read_robot_secret", M, false),
    ("read_robot", M, true),
    ("read_robot_config", M, true),
    ("read_robot_logs", M, true),
    ("write_robot", M, false),
    ("control_robot", M, true),
    ("read_organization_data_management", O, true),
    ("read_location_data_management", L, true),
    ("read_robot_data_management", M, true),
    ("write_organization_data_management", O, false),
    ("write_location_data_management", L, false),
    ("write_robot_data_management", M, false),
    ("read_robot_history", M, true),
    ("read_mapping_sessions", M, true),
    ("create_maps", M, false),
    ("write_private_registry_item", O, false),
    ("write_public_registry_item", O, false),
    ("read_private_registry_item", O, true),
    ("train_models", O, false),
    ("read_packages", O, true),
    ("write_packages", O, false),
    ("delete_packages", O, false),
    ("configure_database_user", O, false),
    ("get_database_connection", O, false),
    ("create_dataset", O, false),
    ("list_dataset", O, true),
    ("rename_dataset", O, false),
    ("delete_dataset", O, false),
];

/// What stays with the organization that owns a location when it is shared: to change it, and its secrets.
const NEVER_SHARED: [&str; 2] = ["write_location", "read_location_secret"];

/// One of those who have roles, by number.
pub(super) type Identity = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Organization(usize),
    Location(usize),
    Machine(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Owner,
    Operator,
}

/// Everything there is, by numbers.
#[derive(Default)]
pub(super) struct Model {
    /// Organization, parent.
    pub(super) locations: Vec<(usize, Option<usize>)>,
    /// Location.
    pub(super) machines: Vec<usize>,
    /// One of each organization.
    pub(super) fragments: Vec<FragmentVisibility>,
    /// Location, organization.
    pub(super) shares: BTreeSet<(usize, usize)>,
    pub(super) roles: BTreeSet<(Identity, Thing, Role)>,
}

impl Model {
    /// The thing and everything around it, up to its organization.
    pub(super) fn above(&self, thing: Thing) -> Vec<Thing> {
        let mut above = vec![thing];
        loop {
            let next = match *above.last().unwrap() {
                Thing::Organization(_) => return above,
                Thing::Machine(n) => Thing::Location(self.machines[n]),
                Thing::Location(n) => match self.locations[n] {
                    (organization, None) => Thing::Organization(organization),
                    (_, Some(parent)) => Thing::Location(parent),
                },
            };
            above.push(next);
        }
    }

    pub(super) fn organization(&self, thing: Thing) -> usize {
        match *self.above(thing).last().unwrap() {
            Thing::Organization(n) => n,
            Thing::Location(_) | Thing::Machine(_) => unreachable!("the way up ends at an organization"),
        }
    }

    /// All permissions of somebody on a thing. What is about something smaller is about all of it that lies in there.
    pub(super) fn permitted(&self, who: Identity, thing: Thing) -> Vec<&'static str> {
        let above = self.above(thing);
        let smaller: &[About] = match thing {
            Thing::Organization(_) => &[O, L, M],
            Thing::Location(_) => &[L, M],
            Thing::Machine(_) => &[M],
        };
        let gives = |on: Thing, role: Role, (word, about, of_operators): (&str, About, bool)| {
            let by_share = match on {
                Thing::Organization(n) => {
                    above.iter().any(|one| matches!(one, Thing::Location(place) if self.shares.contains(&(*place, n))))
                }
                Thing::Location(_) | Thing::Machine(_) => false,
            };
            let below: &[About] = match on {
                Thing::Organization(_) if above.contains(&on) => &[O, L, M],
                Thing::Organization(_) if by_share && !NEVER_SHARED.contains(&word) => &[L, M],
                Thing::Location(_) if above.contains(&on) => &[L, M],
                Thing::Machine(_) if above.contains(&on) => &[M],
                _ => &[],
            };
            below.contains(&about) && (role == Role::Owner || of_operators)
        };
        let held = |row: &&(&'static str, About, bool)| {
            smaller.contains(&row.1)
                && self.roles.iter().any(|(whose, on, role)| *whose == who && gives(*on, *role, **row))
        };
        TABLE.iter().filter(held).map(|(word, ..)| *word).collect()
    }

    /// Whether somebody may know that there is such a thing: it may do something to it, or to something inside.
    pub(super) fn sees(&self, who: Identity, thing: Thing) -> bool {
        let inside = self.roles.iter().any(|(whose, on, _)| *whose == who && self.above(*on).contains(&thing));
        inside || !self.permitted(who, thing).is_empty()
    }

    /// Whether somebody has any role there.
    pub(super) fn belongs(&self, who: Identity, organization: usize) -> bool {
        self.roles.iter().any(|(whose, thing, _)| *whose == who && self.organization(*thing) == organization)
    }

    pub(super) fn things(&self) -> Vec<Thing> {
        let organizations = (0..self.fragments.len()).map(Thing::Organization);
        let locations = (0..self.locations.len()).map(Thing::Location);
        organizations.chain(locations).chain((0..self.machines.len()).map(Thing::Machine)).collect()
    }
}
