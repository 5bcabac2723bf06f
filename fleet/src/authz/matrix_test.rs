//! Prints the whole matrix to docs/permissions.md and compares: who changes the table sees what that means.
//!
//! `make docs` writes the file.

use std::{fmt::Write, path::Path};

use super::*;

const COLUMNS: [(&str, Role, Level); 8] = [
    ("organization owner", Role::Owner, Level::Organization),
    ("organization operator", Role::Operator, Level::Organization),
    ("owner, by a share", Role::Owner, Level::SharedOrganization),
    ("operator, by a share", Role::Operator, Level::SharedOrganization),
    ("location owner", Role::Owner, Level::Location),
    ("location operator", Role::Operator, Level::Location),
    ("machine owner", Role::Owner, Level::Machine),
    ("machine operator", Role::Operator, Level::Machine),
];

const TARGETS: [(&str, Target); 5] = [
    ("an organization", Target::Organization),
    ("a fragment", Target::Fragment),
    ("a registry item", Target::RegistryItem),
    ("a location", Target::Location),
    ("a machine and its parts", Target::Machine),
];

fn matrix() -> String {
    let mut page = String::from(
        "# Permissions\n\n\
         Generated from `fleet/src/authz/policy.rs`; a test fails when it is stale \
         (`make docs` writes it).\n\n\
         Read: a key that has the role of the column, given on the organization, on a location above the thing (or on it), \
         or on the machine, may do what the row says to the thing of the section. \"By a share\": the role was given on \
         another organization, with which a location above the thing is shared. A permission about machines, asked \
         for on a location or an organization, is asked for on everything in it. What no role of the caller reaches \
         is not found; what it sees but may not do is denied.\n\n\
         Public registry items, like public fragments, are read by everybody with a key. The files of an organization's \
         private ones are also fetched by the devices of its machines, and by keys that hold `control_robot` on one of \
         these. Changing or deleting an item that is public, and making one public, needs `write_public_registry_item` too.\n\n\
         Keys, roles, members and invitations are decided with `write_organization` on the organization; its members \
         are read with `read_organization`. A person has roles like a key, and acts with them by any of its keys. Whoever \
         has a role in an organization may leave it.\n\n\
         Devices hold none of these: a part's own secret, or a secret of a location above it, opens that part's \
         device calls and nothing else. An API key needs `write_robot` for them, or a role on the machine itself: such a \
         key is the device's own.\n\n\
         In configurations, histories included, who lacks `write_robot` (for a fragment `write_fragment`) sees `********` \
         instead of passwords, values of the machine server's environment, and what is given to variables of fragments; of \
         an organization's default fragments, who lacks `write_organization` does (a new \
         machine begins with them, and whoever may write that machine sees what they give it). \
         Device calls carry them in clear, since a device needs them; an operator of more than one machine makes none.\n",
    );
    for (title, target) in TARGETS {
        write!(page, "\n## On {title}\n\n| permission |").unwrap();
        COLUMNS.iter().for_each(|(column, ..)| write!(page, " {column} |").unwrap());
        writeln!(page, "\n|---|{}", "---|".repeat(COLUMNS.len())).unwrap();
        for permission in Permission::ALL {
            let cells: Vec<bool> =
                COLUMNS.iter().map(|(_, role, level)| policy(*role, *level, target).contains(*permission)).collect();
            if cells.contains(&true) {
                write!(page, "| `{}` |", permission.word()).unwrap();
                cells.iter().for_each(|yes| write!(page, " {} |", if *yes { "yes" } else { "" }).unwrap());
                page.push('\n');
            }
        }
    }
    page
}

#[test]
fn the_generated_matrix_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/permissions.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, matrix()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), matrix(), "{} is stale", path.display());
}

#[test]
fn owners_cover_operators_and_wider_grants_cover_narrower_ones() {
    for (_, target) in TARGETS {
        for level in [Level::Organization, Level::SharedOrganization, Level::Location, Level::Machine] {
            assert!(policy(Role::Owner, level, target).covers(policy(Role::Operator, level, target)));
        }
        for role in [Role::Owner, Role::Operator] {
            let at = |level| policy(role, level, target);
            assert!(at(Level::Organization).covers(at(Level::Location)));
            assert!(at(Level::Organization).covers(at(Level::SharedOrganization)));
            assert!(at(Level::Location).covers(at(Level::Machine)));
        }
    }
}

#[test]
fn operators_write_nothing_and_see_no_secret() {
    for permission in Permission::ALL {
        let word = permission.word();
        let harmless = word.starts_with("read_") && !word.ends_with("_secret");
        let allowed = policy(Role::Operator, Level::Organization, Target::Organization).contains(*permission);
        assert_eq!(allowed, harmless || ["control_robot", "list_dataset"].contains(&word), "{word}");
    }
}
