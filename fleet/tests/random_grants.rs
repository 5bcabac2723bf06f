//! Random roles in random trees that are shared and moved about, against a naive reading of the same.
//!
//! The server remembers ways up and sessions; this remembers nothing and walks every time. Both use the one table of the
//! policy: what is compared is who reaches what, after every change.

mod world;

use std::collections::BTreeSet;

use api::pb::platform::app::v1::*;
use fleet::{
    authz::{Level, Permission, Role, Target, policy},
    people,
};
use tonic::Code;
use world::{Client, Owner, World, code};

/// Numbers from a seed; the seed is in the message of a failure.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Organization(usize),
    Location(usize),
    Machine(usize),
}

/// Everything there is, by numbers.
struct Model {
    organizations: Vec<Owner>,
    /// Id, organization, parent.
    locations: Vec<(String, usize, Option<usize>)>,
    /// Id, location.
    machines: Vec<(String, usize)>,
    /// Location, organization.
    shares: BTreeSet<(usize, usize)>,
    roles: BTreeSet<(Thing, bool)>,
}

impl Model {
    fn id(&self, thing: Thing) -> (&'static str, &str) {
        match thing {
            Thing::Organization(n) => ("organization", &self.organizations[n].organization),
            Thing::Location(n) => ("location", &self.locations[n].0),
            Thing::Machine(n) => ("robot", &self.machines[n].0),
        }
    }

    /// The thing and everything around it, up to its organization.
    fn above(&self, thing: Thing) -> Vec<Thing> {
        let mut above = vec![thing];
        loop {
            let next = match *above.last().unwrap() {
                Thing::Organization(_) => return above,
                Thing::Machine(n) => Thing::Location(self.machines[n].1),
                Thing::Location(n) => match self.locations[n] {
                    (_, organization, None) => Thing::Organization(organization),
                    (_, _, Some(parent)) => Thing::Location(parent),
                },
            };
            above.push(next);
        }
    }

    fn owner(&self, thing: Thing) -> usize {
        match *self.above(thing).last().unwrap() {
            Thing::Organization(n) => n,
            _ => unreachable!("the way up ends at an organization"),
        }
    }

    /// The words that are told, or nothing if the thing is not seen.
    fn expected(&self, thing: Thing) -> Option<Vec<&'static str>> {
        let above = self.above(thing);
        let mut held = fleet::authz::Permissions::NONE;
        let mut seen = false;
        let target = match thing {
            Thing::Organization(_) => Target::Organization,
            Thing::Location(_) => Target::Location,
            Thing::Machine(_) => Target::Machine,
        };
        for &(on, owns) in &self.roles {
            let shared =
                |n| above.iter().any(|one| matches!(one, Thing::Location(place) if self.shares.contains(&(*place, n))));
            let level = match on {
                Thing::Organization(_) if above.contains(&on) => Some(Level::Organization),
                Thing::Organization(n) if shared(n) => Some(Level::SharedOrganization),
                Thing::Location(_) if above.contains(&on) => Some(Level::Location),
                Thing::Machine(_) if above.contains(&on) => Some(Level::Machine),
                _ => None,
            };
            let role = if owns { Role::Owner } else { Role::Operator };
            if let Some(level) = level {
                held = held.with(policy(role, level, target));
            }
            seen |= self.above(on).contains(&thing);
        }
        let words = Permission::ALL.iter().filter(|one| held.contains(**one)).map(|one| one.word()).collect();
        (seen || !held.is_empty()).then_some(words)
    }

    /// Whether the person reads what an organization publishes for itself, and whether it may fetch it to run it.
    fn registry(&self, organization: usize) -> (bool, bool) {
        let reads = self.roles.iter().any(|(on, _)| *on == Thing::Organization(organization));
        (reads, self.roles.iter().any(|(on, _)| self.owner(*on) == organization))
    }

    fn things(&self) -> Vec<Thing> {
        let organizations = (0..self.organizations.len()).map(Thing::Organization);
        let locations = (0..self.locations.len()).map(Thing::Location);
        organizations.chain(locations).chain((0..self.machines.len()).map(Thing::Machine)).collect()
    }
}

/// Whether a private module, and its file, are found.
async fn finds(client: &Client, module: &str) -> (bool, bool) {
    use api::pb::platform::app::packages::v1::*;
    let request = GetModuleRequest { module_id: module.into(), ..Default::default() };
    let reads = code(client.app::<_, GetModuleResponse>("GetModule", request).await);
    let request = GetPackageRequest { id: module.into(), ..Default::default() };
    let path = "/platform.app.packages.v1.PackageService/GetPackage";
    let fetches = client.call::<_, GetPackageResponse>(path, request).await;
    for refused in [reads, code(fetches.clone())] {
        assert!(matches!(refused, Code::Ok | Code::NotFound), "{refused:?}");
    }
    // Nothing was uploaded, which only who may fetch is told.
    let fetches = fetches.is_err_and(|refused| refused.message().contains("file of that version"));
    (reads == Code::Ok, fetches)
}

async fn told(client: &Client, kind: &str, id: &str) -> Result<Option<Vec<String>>, Code> {
    let asked = AuthorizedPermissions {
        resource_type: kind.into(),
        resource_id: id.into(),
        permissions: Permission::ALL.iter().map(|one| one.word().to_owned()).collect(),
    };
    let request = CheckPermissionsRequest { permissions: vec![asked] };
    match client.app::<_, CheckPermissionsResponse>("CheckPermissions", request).await {
        Ok(told) => {
            Ok(Some(told.authorized_permissions.into_iter().next().map(|one| one.permissions).unwrap_or_default()))
        }
        Err(refused) if refused.code() == Code::NotFound => Ok(None),
        Err(refused) => Err(refused.code()),
    }
}

#[tokio::test]
async fn who_reaches_what_is_what_a_naive_reading_says() {
    const SEED: u64 = 5;
    let mut dice = Dice(SEED);
    let world = World::new().await;
    let organizations = vec![world.owner("First").await, world.owner("Second").await];
    let (mut locations, mut machines) = (Vec::new(), Vec::new());
    for (n, owner) in organizations.iter().enumerate() {
        for count in 0..4 {
            locations.push((owner.location(&format!("place {count}"), None).await, n, None));
        }
        for count in 0..3 {
            let place = n * 4 + dice.below(4);
            machines.push((owner.machine(&locations[place].0, &format!("machine {count}")).await, place));
        }
    }
    let mut modules = Vec::new();
    for owner in &organizations {
        let request = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
        let made: CreateModuleResponse = owner.client.app("CreateModule", request).await.unwrap();
        modules.push(made.module_id);
    }
    let mut model = Model { organizations, locations, machines, shares: BTreeSet::new(), roles: BTreeSet::new() };
    let person = people::add(&world.server.context, "ann@example.org", None).await.unwrap();
    let client = world.login("api-key", &person.key_id, &person.key).await.unwrap();

    let mut changes = [0; 5];
    for step in 0..120 {
        let things = model.things();
        let what = dice.below(5);
        match what {
            // A role comes, or goes if it was there.
            0 | 1 => {
                // Few at a time: whoever has many roles sees everything.
                let (thing, owns) = match model.roles.len() {
                    count @ 3.. => *model.roles.iter().nth(dice.below(count)).unwrap(),
                    _ => (things[dice.below(things.len())], dice.below(2) == 0),
                };
                let giver = &model.organizations[model.owner(thing)];
                let (kind, id) = model.id(thing);
                let authorization = Authorization {
                    identity_id: person.user_id.clone(),
                    identity_type: String::new(),
                    ..giver.key_request(if owns { "owner" } else { "operator" }, kind, id).authorizations.remove(0)
                };
                let authorization = Some(authorization);
                let done = match model.roles.contains(&(thing, owns)) {
                    true => {
                        let request = RemoveRoleRequest { authorization };
                        giver.client.app::<_, RemoveRoleResponse>("RemoveRole", request).await.map(drop)
                    }
                    false => {
                        let request = AddRoleRequest { authorization };
                        giver.client.app::<_, AddRoleResponse>("AddRole", request).await.map(drop)
                    }
                };
                assert_eq!(code(done), Code::Ok, "seed {SEED}, step {step}");
                if !model.roles.insert((thing, owns)) {
                    model.roles.remove(&(thing, owns));
                }
            }
            // A location is shared with the other organization, or not any more.
            2 => {
                let place = dice.below(model.locations.len());
                let (id, owner) = (model.locations[place].0.clone(), model.locations[place].1);
                let other = 1 - owner;
                let organization_id = model.organizations[other].organization.clone();
                let by = &model.organizations[owner].client;
                let done = match model.shares.contains(&(place, other)) {
                    true => {
                        let request = UnshareLocationRequest { location_id: id, organization_id };
                        by.app::<_, UnshareLocationResponse>("UnshareLocation", request).await.map(drop)
                    }
                    false => {
                        let request = ShareLocationRequest { location_id: id, organization_id };
                        by.app::<_, ShareLocationResponse>("ShareLocation", request).await.map(drop)
                    }
                };
                assert_eq!(code(done), Code::Ok, "seed {SEED}, step {step}");
                if !model.shares.insert((place, other)) {
                    model.shares.remove(&(place, other));
                }
            }
            // A machine goes to another location of its organization.
            3 => {
                let machine = dice.below(model.machines.len());
                let owner = model.owner(Thing::Machine(machine));
                let place = owner * 4 + dice.below(4);
                let request = UpdateRobotRequest {
                    id: model.machines[machine].0.clone(),
                    name: format!("machine {machine}"),
                    location: model.locations[place].0.clone(),
                };
                let by = &model.organizations[owner].client;
                let moved = by.app::<_, UpdateRobotResponse>("UpdateRobot", request).await;
                assert_eq!(code(moved), Code::Ok, "seed {SEED}, step {step}");
                model.machines[machine].1 = place;
            }
            // A location goes into another one, or to the top; circles are refused.
            _ => {
                let place = dice.below(model.locations.len());
                let owner = model.locations[place].1;
                let parent = Some(owner * 4 + dice.below(4)).filter(|_| dice.below(3) > 0);
                let request = UpdateLocationRequest {
                    location_id: model.locations[place].0.clone(),
                    parent_location_id: Some(
                        parent.map_or_else(String::new, |parent| model.locations[parent].0.clone()),
                    ),
                    ..Default::default()
                };
                let moved =
                    model.organizations[owner].client.app::<_, UpdateLocationResponse>("UpdateLocation", request);
                let circle =
                    parent.is_some_and(|parent| model.above(Thing::Location(parent)).contains(&Thing::Location(place)));
                let expected = if circle { Code::InvalidArgument } else { Code::Ok };
                assert_eq!(code(moved.await), expected, "seed {SEED}, step {step}");
                if !circle {
                    model.locations[place].2 = parent;
                }
            }
        }
        changes[what] += 1;
        for (n, module) in modules.iter().enumerate() {
            let found = finds(&client, module).await;
            assert_eq!(found, model.registry(n), "seed {SEED}, step {step}: {module} {:?}", model.roles);
        }
        for thing in things {
            let (kind, id) = model.id(thing);
            let expected = model.expected(thing).map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(
                told(&client, kind, id).await,
                Ok(expected),
                "seed {SEED}, step {step}: {thing:?} {:?}",
                model.roles
            );
        }
    }
    assert!(changes.iter().all(|count| *count > 5), "every kind of change was made: {changes:?}");
    world.end().await;
}
