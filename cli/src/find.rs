//! Which thing a person means: by id, by name, or by being the only one.
//!
//! Asks the server for what it lists and compares names here. Never guesses: two of one name are an error that shows how
//! to tell them apart.

use api::{
    client::Code,
    pb::platform::app::v1::{self as app, app_service},
};

use crate::{failure::Failure, session::Session};

/// A UUID, as all ids are.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(at, sign)| match at {
            8 | 13 | 18 | 23 => sign == '-',
            _ => sign.is_ascii_hexdigit(),
        })
}

/// The organization that is meant: given by name or id, or the only one the key sees.
pub(crate) fn organization(session: &Session, given: Option<&str>) -> Result<app::Organization, Failure> {
    let listed = session.ask(
        "could not list the organizations",
        app_service::LIST_ORGANIZATIONS,
        &app::ListOrganizationsRequest {},
    )?;
    let given = given.or(session.organization.as_deref());
    only(listed.organizations, "organization", given, |one| (&one.id, &one.name), "use --organization")
}

/// All locations of the organization that is meant.
pub(crate) fn locations(session: &Session) -> Result<Vec<app::Location>, Failure> {
    let organization_id = organization(session, None)?.id;
    let request = app::ListLocationsRequest { organization_id };
    Ok(session.ask("could not list the locations", app_service::LIST_LOCATIONS, &request)?.locations)
}

/// The location that is meant, or the only one.
pub(crate) fn location(session: &Session, given: Option<&str>) -> Result<app::Location, Failure> {
    if let Some(id) = given.filter(|given| is_id(given)) {
        let request = app::GetLocationRequest { location_id: id.to_owned() };
        let found = session.ask("could not read the location", app_service::GET_LOCATION, &request)?;
        return found.location.ok_or_else(|| Failure::NotFound(format!("there is no location {id}")));
    }
    only(locations(session)?, "location", given, |one| (&one.id, &one.name), "name one, by its name or id")
}

/// A machine and where it is.
pub(crate) struct Placed {
    pub(crate) machine: app::Robot,
    pub(crate) location: app::Location,
}

/// Every machine that can be seen, or only those of one location.
pub(crate) fn machines(session: &Session, location: Option<&str>) -> Result<Vec<Placed>, Failure> {
    let locations = match location {
        Some(given) => vec![self::location(session, Some(given))?],
        None => locations(session)?,
    };
    let mut machines = Vec::new();
    for location in locations {
        let request = app::ListRobotsRequest { location_id: location.id.clone() };
        let listed = session.ask("could not list the machines", app_service::LIST_ROBOTS, &request)?;
        machines.extend(listed.robots.into_iter().map(|machine| Placed { machine, location: location.clone() }));
    }
    Ok(machines)
}

/// The machine that is meant: by id, by `NAME`, by `LOCATION/NAME`, or the only one.
pub(crate) fn machine(session: &Session, given: Option<&str>) -> Result<app::Robot, Failure> {
    if let Some(id) = given.filter(|given| is_id(given)) {
        let request = app::GetRobotRequest { id: id.to_owned() };
        let found = session.ask("could not read the machine", app_service::GET_ROBOT, &request)?;
        return found.robot.ok_or_else(|| Failure::NotFound(format!("there is no machine {id}")));
    }
    let (location, name) = match given.and_then(|given| given.split_once('/')) {
        Some((location, name)) => (Some(location), Some(name)),
        None => (None, given),
    };
    let machines = machines(session, location)?;
    let hint = "name one, as LOCATION/MACHINE or by its id";
    let found = only(machines, "machine", name, |one| (&one.machine.id, &one.machine.name), hint)?;
    Ok(found.machine)
}

/// The parts of a machine.
pub(crate) fn parts(session: &Session, machine_id: &str) -> Result<Vec<app::RobotPart>, Failure> {
    let request = app::GetRobotPartsRequest { robot_id: machine_id.to_owned() };
    Ok(session.ask("could not list the parts", app_service::GET_ROBOT_PARTS, &request)?.parts)
}

/// The part that is meant: by its own id or its machine's, by `[LOCATION/]MACHINE` for its main part, by `LOCATION/MACHINE/PART`, or the main
/// part of the only machine.
pub(crate) fn part(session: &Session, given: Option<&str>) -> Result<app::RobotPart, Failure> {
    if let Some(id) = given.filter(|given| is_id(given)) {
        match part_by_id(session, id) {
            // The id of a machine, perhaps: its main part, as with its name.
            Err(failure) if failure.code() == Some(Code::NotFound) => {
                return parts(session, id).and_then(|parts| main_part(parts, id)).map_err(|_| failure);
            }
            found => return found.map(|(part, _)| part),
        }
    }
    let (machine_name, part_name) = match given.map(|given| given.splitn(3, '/').collect::<Vec<_>>()).as_deref() {
        Some([location, machine, part]) => (Some(format!("{location}/{machine}")), Some((*part).to_owned())),
        _ => (given.map(str::to_owned), None),
    };
    let machine = machine(session, machine_name.as_deref())?;
    let parts = parts(session, &machine.id)?;
    match part_name {
        Some(name) => only(parts, "part", Some(&name), |one| (&one.id, &one.name), "use its id"),
        None => main_part(parts, &machine.name),
    }
}

fn main_part(parts: Vec<app::RobotPart>, machine: &str) -> Result<app::RobotPart, Failure> {
    let main = parts.into_iter().find(|part| part.main_part);
    main.ok_or_else(|| Failure::NotFound(format!("the machine {machine:?} has no main part")))
}

/// The part with this id, and its configuration as text.
pub(crate) fn part_by_id(session: &Session, id: &str) -> Result<(app::RobotPart, String), Failure> {
    let request = app::GetRobotPartRequest { id: id.to_owned() };
    let found = session.ask("could not read the part", app_service::GET_ROBOT_PART, &request)?;
    let part = found.part.ok_or_else(|| Failure::NotFound(format!("there is no part {id}")))?;
    Ok((part, found.config_json))
}

/// The one with the name or id that was given; if nothing was given, the only one there is.
pub(crate) fn only<T>(
    items: Vec<T>,
    what: &str,
    given: Option<&str>,
    id_and_name: impl Fn(&T) -> (&String, &String),
    hint: &str,
) -> Result<T, Failure> {
    let wanted = |item: &T| {
        let (id, name) = id_and_name(item);
        given.is_none_or(|given| given == id || given == name)
    };
    let (mut matching, rest): (Vec<T>, Vec<T>) = items.into_iter().partition(wanted);
    let names = |items: &[T]| {
        let mut lines: Vec<String> = items
            .iter()
            .take(LISTED_MAX)
            .map(|item| {
                let (id, name) = id_and_name(item);
                format!("\n  {name}  {id}")
            })
            .collect();
        if items.len() > LISTED_MAX {
            lines.push(format!("\n  and {} more", items.len() - LISTED_MAX));
        }
        lines.concat()
    };
    match (matching.len(), given) {
        (1, _) => matching.pop().ok_or_else(|| Failure::NotFound(format!("no {what}"))),
        (0, None) => Err(Failure::NotFound(format!("there is no {what} that you may see"))),
        (0, Some(given)) if rest.is_empty() => {
            Err(Failure::NotFound(format!("there is no {what} {given:?}, nor any other")))
        }
        (0, Some(given)) => Err(Failure::NotFound(format!("there is no {what} {given:?}; there are:{}", names(&rest)))),
        (_, None) => Err(Failure::NotFound(format!("there is more than one {what}; {hint}:{}", names(&matching)))),
        (_, Some(given)) => {
            Err(Failure::NotFound(format!("more than one {what} is called {given:?}; {hint}:{}", names(&matching))))
        }
    }
}

/// Names that an error repeats; a fleet has thousands.
const LISTED_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for (text, id) in [
            ("0b1e4d7c-1111-4222-8333-444455556666", true),
            ("0b1e4d7c-1111-4222-8333-44445555666", false),
            ("rover", false),
        ] {
            assert_eq!(is_id(text), id, "{text}");
        }
    }

    #[test]
    fn names() {
        let items =
            || [("1", "rover"), ("2", "arm"), ("3", "arm")].map(|(id, name)| (id.to_owned(), name.to_owned())).to_vec();
        let table = [
            (Some("rover"), Ok("1")),
            (Some("3"), Ok("3")),
            (Some("arm"), Err("more than one machine is called \"arm\"; use its id:\n  arm  2\n  arm  3")),
            (Some("leg"), Err("there is no machine \"leg\"; there are:\n  rover  1\n  arm  2\n  arm  3")),
            (None, Err("there is more than one machine; use its id:\n  rover  1\n  arm  2\n  arm  3")),
        ];
        for (given, expected) in table {
            let found = only(items(), "machine", given, |(id, name)| (id, name), "use its id");
            let found = found.map(|(id, _)| id).map_err(|failure| failure.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{given:?}");
        }
    }
}
