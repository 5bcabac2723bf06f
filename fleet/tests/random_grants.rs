//! Random roles in random trees that are shared and moved about, against a naive reading of the same.
//!
//! The server remembers ways up and sessions, and has one table of what roles give; this remembers nothing, walks every
//! time, and reads its own table, which was written from the sentences of the semantics (6.4) and not from the server's.

mod world;

#[path = "random_grants/model.rs"]
mod model;

use std::collections::{BTreeMap, BTreeSet};

use api::pb::platform::app::{packages::v1::*, v1::*};
use fleet::{documents::MASK, people};
use model::{Identity, Model, Role, TABLE, Thing};
use tonic::Code;
use world::{Client, Owner, World, code};

/// Each its own organizations; the seed is in the message of a failure.
const SEEDS: [u64; 4] = [5, 11, 2024, 90_210];
/// Changes of each.
const STEPS: usize = 40;
/// A fragment's password.
const PASSWORD: &str = "open sesame";
const LOCATIONS: usize = 4;
const MACHINES: usize = 3;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Somebody with roles.
struct Somebody {
    /// Of the key, or of the person.
    id: String,
    /// The organization that made the key.
    key_of: Option<usize>,
    client: Client,
}

/// Everything there is on the server, by the numbers of the model.
struct Real<'w> {
    world: &'w World,
    organizations: Vec<Owner>,
    locations: Vec<String>,
    /// Id, main part.
    machines: Vec<(String, String)>,
    modules: Vec<String>,
    fragments: Vec<String>,
    somebody: Vec<Somebody>,
}

impl<'w> Real<'w> {
    async fn new(world: &'w World, seed: u64, dice: &mut Dice) -> (Self, Model) {
        let organizations = vec![world.owner("First").await, world.owner("Second").await];
        let mut real = Self {
            world,
            organizations,
            locations: Vec::new(),
            machines: Vec::new(),
            modules: Vec::new(),
            fragments: Vec::new(),
            somebody: Vec::new(),
        };
        let mut model = Model::default();
        for (n, owner) in real.organizations.iter().enumerate() {
            for count in 0..LOCATIONS {
                real.locations.push(owner.location(&format!("place {count}"), None).await);
                model.locations.push((n, None));
            }
            for count in 0..MACHINES {
                let place = n * LOCATIONS + dice.below(LOCATIONS);
                let machine = owner.machine(&real.locations[place], &format!("machine {count}")).await;
                real.machines.push((machine.clone(), owner.main_part(&machine).await.id));
                model.machines.push(place);
            }
            let request = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
            let made: CreateModuleResponse = owner.client.app("CreateModule", request).await.unwrap();
            real.modules.push(made.module_id);
            let request = CreateFragmentRequest {
                name: "base".into(),
                organization_id: owner.organization.clone(),
                ..CreateFragmentRequest::default()
            };
            let made: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
            real.fragments.push(made.fragment.unwrap().id);
            model.fragments.push(FragmentVisibility::Private);
        }
        for n in 0..2 {
            real.shows(n, FragmentVisibility::Private).await;
            let made = people::add(&world.server.context, &format!("p{n}-{seed}@example.org"), None).await.unwrap();
            let client = world.login("api-key", &made.key_id, &made.key).await.unwrap();
            real.somebody.push(Somebody { id: made.user_id, key_of: None, client });
        }
        for n in 0..2 {
            let made = real.new_key(n).await;
            real.somebody.push(made);
            model.roles.insert((n + 2, Thing::Machine(n * MACHINES), Role::Operator));
        }
        (real, model)
    }

    /// A key of that organization; no key is made without a role.
    async fn new_key(&self, organization: usize) -> Somebody {
        let owner = &self.organizations[organization];
        let (machine, _) = &self.machines[organization * MACHINES];
        let made: CreateKeyResponse =
            owner.client.app("CreateKey", owner.key_request("operator", "robot", machine)).await.unwrap();
        let client = self.world.login("api-key", &made.id, &made.key).await.unwrap();
        Somebody { id: made.id, key_of: Some(organization), client }
    }

    /// Sets who reads the organization's fragment.
    async fn shows(&self, organization: usize, visibility: FragmentVisibility) {
        let request = UpdateFragmentRequest {
            id: self.fragments[organization].clone(),
            name: "base".into(),
            fragment_config_json: Some(format!(r#"{{"psk":"{PASSWORD}"}}"#)),
            visibility: Some(visibility.into()),
            ..UpdateFragmentRequest::default()
        };
        let by = &self.organizations[organization].client;
        by.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
    }

    fn id(&self, thing: Thing) -> (&'static str, &str) {
        match thing {
            Thing::Organization(n) => ("organization", &self.organizations[n].organization),
            Thing::Location(n) => ("location", &self.locations[n]),
            Thing::Machine(n) => ("robot", &self.machines[n].0),
        }
    }

    fn authorization(&self, giver: &Owner, who: Identity, thing: Thing, role: Role) -> Option<Authorization> {
        let (kind, id) = self.id(thing);
        let word = if role == Role::Owner { "owner" } else { "operator" };
        let authorization = giver.key_request(word, kind, id).authorizations.remove(0);
        Some(Authorization {
            identity_id: self.somebody[who].id.clone(),
            identity_type: String::new(),
            ..authorization
        })
    }
}

/// What is done to both, chosen by dice.
async fn change(real: &mut Real<'_>, model: &mut Model, dice: &mut Dice, what: usize) {
    match what {
        // A role comes, or goes if it was there. Few at a time: whoever has many roles sees everything.
        0..=3 => {
            let held: Vec<_> = model.roles.iter().copied().collect();
            let (who, thing, role) = match held.len() {
                6.. => dice.one(&held),
                _ => {
                    let (who, whole) = (dice.below(real.somebody.len()), dice.below(3));
                    let mut things = model.things();
                    things
                        .retain(|thing| real.somebody[who].key_of.is_none_or(|own| own == model.organization(*thing)));
                    // Shares are for who has a role on a whole organization.
                    things.retain(|thing| matches!(thing, Thing::Organization(_)) || whole > 0);
                    (who, dice.one(&things), dice.one(&[Role::Owner, Role::Operator]))
                }
            };
            let giver = &real.organizations[model.organization(thing)];
            let authorization = real.authorization(giver, who, thing, role);
            if model.roles.remove(&(who, thing, role)) {
                let request = RemoveRoleRequest { authorization };
                giver.client.app::<_, RemoveRoleResponse>("RemoveRole", request).await.unwrap();
            } else {
                let request = AddRoleRequest { authorization };
                giver.client.app::<_, AddRoleResponse>("AddRole", request).await.unwrap();
                model.roles.insert((who, thing, role));
            }
        }
        // A role goes from one to another, who may be the same one.
        4 => {
            let held: Vec<_> = model.roles.iter().copied().collect();
            if held.is_empty() {
                return;
            }
            let (who, thing, role) = dice.one(&held);
            let at = model.organization(thing);
            let mut things = model.things();
            things.retain(|thing| model.organization(*thing) == at);
            let mut others: Vec<Identity> = (0..real.somebody.len()).collect();
            others.retain(|other| real.somebody[*other].key_of.is_none_or(|own| own == at));
            let new = (dice.one(&others), dice.one(&things), dice.one(&[Role::Owner, Role::Operator]));
            let giver = &real.organizations[at];
            let request = ChangeRoleRequest {
                old_authorization: real.authorization(giver, who, thing, role),
                new_authorization: real.authorization(giver, new.0, new.1, new.2),
            };
            giver.client.app::<_, ChangeRoleResponse>("ChangeRole", request).await.unwrap();
            model.roles.remove(&(who, thing, role));
            model.roles.insert(new);
        }
        // A location is shared with the other organization, or not any more.
        5 | 6 => {
            let shared: Vec<usize> = model.shares.iter().map(|(place, _)| *place).collect();
            let place = match shared.len() {
                3.. => dice.one(&shared),
                _ => dice.below(real.locations.len()),
            };
            let (owner, location_id) = (model.locations[place].0, real.locations[place].clone());
            let organization_id = real.organizations[1 - owner].organization.clone();
            let by = &real.organizations[owner].client;
            if model.shares.remove(&(place, 1 - owner)) {
                let request = UnshareLocationRequest { location_id, organization_id };
                by.app::<_, UnshareLocationResponse>("UnshareLocation", request).await.unwrap();
            } else {
                let request = ShareLocationRequest { location_id, organization_id };
                by.app::<_, ShareLocationResponse>("ShareLocation", request).await.unwrap();
                model.shares.insert((place, 1 - owner));
            }
        }
        // A machine goes to another location of its organization.
        7 => {
            let machine = dice.below(real.machines.len());
            let owner = model.organization(Thing::Machine(machine));
            let place = owner * LOCATIONS + dice.below(LOCATIONS);
            let request = UpdateRobotRequest {
                id: real.machines[machine].0.clone(),
                name: format!("machine {}", machine % MACHINES),
                location: real.locations[place].clone(),
            };
            let by = &real.organizations[owner].client;
            by.app::<_, UpdateRobotResponse>("UpdateRobot", request).await.unwrap();
            model.machines[machine] = place;
        }
        // A location goes into another one, or to the top; circles are refused.
        8 => {
            let place = dice.below(real.locations.len());
            let owner = model.locations[place].0;
            let parent = Some(owner * LOCATIONS + dice.below(LOCATIONS)).filter(|_| dice.below(3) > 0);
            let parent_id = parent.map_or_else(String::new, |parent| real.locations[parent].clone());
            let request = UpdateLocationRequest {
                location_id: real.locations[place].clone(),
                parent_location_id: Some(parent_id),
                ..UpdateLocationRequest::default()
            };
            let by = &real.organizations[owner].client;
            let moved = by.app::<_, UpdateLocationResponse>("UpdateLocation", request).await;
            let circle =
                parent.is_some_and(|parent| model.above(Thing::Location(parent)).contains(&Thing::Location(place)));
            assert_eq!(code(moved), if circle { Code::InvalidArgument } else { Code::Ok });
            if !circle {
                model.locations[place].1 = parent;
            }
        }
        // A machine is deleted, with all roles on it, and another one stands in its place.
        9 => {
            let machine = dice.below(real.machines.len());
            let owner = &real.organizations[model.organization(Thing::Machine(machine))];
            let request = DeleteRobotRequest { id: real.machines[machine].0.clone() };
            owner.client.app::<_, DeleteRobotResponse>("DeleteRobot", request).await.unwrap();
            let name = format!("machine {}", machine % MACHINES);
            let new = owner.machine(&real.locations[model.machines[machine]], &name).await;
            real.machines[machine] = (new.clone(), owner.main_part(&new).await.id);
            model.roles.retain(|(_, thing, _)| *thing != Thing::Machine(machine));
        }
        // A key gets another secret and keeps its roles, or is deleted and another one made. Its token is over at once.
        10 => {
            let who = 2 + dice.below(2);
            let own = who - 2;
            let (by, id) = (&real.organizations[own].client, real.somebody[who].id.clone());
            let old = real.somebody[who].client.clone();
            if dice.below(2) == 0 {
                let made: RotateKeyResponse = by.app("RotateKey", RotateKeyRequest { id: id.clone() }).await.unwrap();
                real.somebody[who].client = real.world.login("api-key", &id, &made.key).await.unwrap();
            } else {
                by.app::<_, DeleteKeyResponse>("DeleteKey", DeleteKeyRequest { id }).await.unwrap();
                real.somebody[who] = real.new_key(own).await;
                model.roles.retain(|(whose, ..)| *whose != who);
                model.roles.insert((who, Thing::Machine(own * MACHINES), Role::Operator));
            }
            let listed = old.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {});
            assert_eq!(code(listed.await), Code::Unauthenticated, "a key that was deleted or rotated");
        }
        // A person leaves an organization, if it is a member.
        11 => {
            let (who, organization) = (dice.below(2), dice.below(2));
            let of_it = |(whose, thing, _): &(Identity, Thing, Role)| {
                *whose == who && model.organization(*thing) == organization
            };
            let gone: Vec<_> = model.roles.iter().copied().filter(of_it).collect();
            model.roles.retain(|role| !gone.contains(role));
            let owner = &real.organizations[organization];
            let request = DeleteOrganizationMemberRequest {
                organization_id: owner.organization.clone(),
                user_id: real.somebody[who].id.clone(),
            };
            let done = owner.client.app::<_, DeleteOrganizationMemberResponse>("DeleteOrganizationMember", request);
            let expected = if gone.is_empty() { Code::NotFound } else { Code::Ok };
            assert_eq!(code(done.await), expected);
        }
        // A fragment is shown to others, or not any more.
        _ => {
            let organization = dice.below(2);
            let all = [FragmentVisibility::Private, FragmentVisibility::Public, FragmentVisibility::PublicUnlisted];
            let visibility = dice.one(&all);
            real.shows(organization, visibility).await;
            model.fragments[organization] = visibility;
        }
    }
}

/// What somebody is told of things: of all that it may see in one call, of each other one that there is none.
async fn told(real: &Real<'_>, model: &Model, who: Identity, case: &str) {
    let client = &real.somebody[who].client;
    let words: Vec<String> = TABLE.iter().map(|(word, ..)| (*word).to_owned()).collect();
    let ask = |things: &[Thing]| {
        let asked = things.iter().map(|thing| {
            let (kind, id) = real.id(*thing);
            AuthorizedPermissions { resource_type: kind.into(), resource_id: id.into(), permissions: words.clone() }
        });
        CheckPermissionsRequest { permissions: asked.collect() }
    };
    let (seen, hidden): (Vec<Thing>, Vec<Thing>) =
        model.things().into_iter().partition(|thing| model.sees(who, *thing));
    if !seen.is_empty() {
        let answer: CheckPermissionsResponse = client
            .app("CheckPermissions", ask(&seen))
            .await
            .unwrap_or_else(|refused| panic!("{case}: {who} does not see one of {seen:?}: {refused}"));
        let told: BTreeMap<String, Vec<String>> =
            answer.authorized_permissions.into_iter().map(|one| (one.resource_id, one.permissions)).collect();
        for thing in seen {
            let expected = model.permitted(who, thing);
            let told = told.get(real.id(thing).1).cloned().unwrap_or_default();
            assert_eq!(told, expected, "{case}: {who} on {thing:?}");
        }
    }
    for thing in hidden {
        let answer = client.app::<_, CheckPermissionsResponse>("CheckPermissions", ask(&[thing])).await;
        assert_eq!(code(answer), Code::NotFound, "{case}: {who} on {thing:?}");
    }
}

/// Parts, with their secrets or without.
async fn parts(real: &Real<'_>, model: &Model, who: Identity, case: &str) {
    for (n, (_, part)) in real.machines.iter().enumerate() {
        let held = model.permitted(who, Thing::Machine(n));
        let request = GetRobotPartRequest { id: part.clone() };
        let answer = real.somebody[who].client.app::<_, GetRobotPartResponse>("GetRobotPart", request).await;
        let shown = answer.map(|found| !found.part.unwrap().secrets.is_empty()).map_err(|refused| refused.code());
        let expected = match held.contains(&"read_robot_config") {
            true => Ok(held.contains(&"read_robot_secret")),
            false => Err(Code::NotFound),
        };
        assert_eq!(shown, expected, "{case}: {who} on the part of machine {n}");
    }
}

/// Fragments by their ids and in lists, with their passwords or without.
async fn fragments(real: &Real<'_>, model: &Model, who: Identity, case: &str) {
    let client = &real.somebody[who].client;
    for (n, fragment) in real.fragments.iter().enumerate() {
        let organization = Thing::Organization(n);
        let held = model.permitted(who, organization);
        let (reads, writes) = (held.contains(&"read_fragment"), held.contains(&"write_fragment"));
        let case = format!("{case}: {who} on a fragment of {n} that is {:?}", model.fragments[n]);
        let request = GetFragmentRequest { id: fragment.clone(), ..GetFragmentRequest::default() };
        let answer = client.app::<_, GetFragmentResponse>("GetFragment", request).await;
        let shown = answer.map(|found| found.fragment.unwrap().fragment_config_json.unwrap());
        let shown = shown.map_err(|refused| refused.code());
        let expected = match reads || model.fragments[n] != FragmentVisibility::Private {
            true => Ok(format!(r#"{{"psk":"{}"}}"#, if writes { PASSWORD } else { MASK })),
            false => Err(Code::NotFound),
        };
        assert_eq!(shown, expected, "{case}");

        use FragmentVisibility::{Private, Public, PublicUnlisted};
        let request = ListFragmentsRequest {
            organization_id: real.organizations[n].organization.clone(),
            fragment_visibility: [Private, Public, PublicUnlisted].map(i32::from).to_vec(),
            ..ListFragmentsRequest::default()
        };
        let answer = client.app::<_, ListFragmentsResponse>("ListFragments", request).await;
        let listed = answer.map_err(|refused| refused.code()).map(|listed| {
            // Other seeds' organizations have public ones too.
            let is_there = |id: &String| listed.fragments.iter().any(|one| one.id == *id);
            real.fragments.iter().map(is_there).collect::<Vec<_>>()
        });
        let expected = match (reads, model.sees(who, organization)) {
            (true, _) => Ok((0..2).map(|other| other == n || model.fragments[other] == Public).collect()),
            (false, true) => Err(Code::PermissionDenied),
            (false, false) => Err(Code::NotFound),
        };
        assert_eq!(listed, expected, "{case}, listed");
    }
}

/// A private module, and its file.
async fn modules(real: &Real<'_>, model: &Model, who: Identity, case: &str) {
    let client = &real.somebody[who].client;
    for (n, module) in real.modules.iter().enumerate() {
        let request = GetModuleRequest { module_id: module.clone(), ..GetModuleRequest::default() };
        let reads = code(client.app::<_, GetModuleResponse>("GetModule", request).await);
        let request = GetPackageRequest { id: module.clone(), ..GetPackageRequest::default() };
        let path = "/platform.app.packages.v1.PackageService/GetPackage";
        let fetches = client.call::<_, GetPackageResponse>(path, request).await;
        // Nothing was uploaded, which only who may fetch is told.
        let fetches = fetches.expect_err("there is no file");
        let fetches = (fetches.code(), fetches.message().contains("file of that version"));
        let held = model.permitted(who, Thing::Organization(n));
        let expected = if held.contains(&"read_private_registry_item") { Code::Ok } else { Code::NotFound };
        let case = format!("{case}: {who} on a module of {n}");
        assert_eq!(reads, expected, "{case}");
        // To run it, a role on anything there is enough.
        assert_eq!(fetches, (Code::NotFound, model.belongs(who, n)), "{case}");
    }
}

/// Lists: of what is seen everything, and nothing else.
async fn lists(real: &Real<'_>, model: &Model, who: Identity, case: &str) {
    let client = &real.somebody[who].client;
    let case = format!("{case}: listed for {who}");
    let organizations = (0..real.organizations.len()).filter(|n| model.belongs(who, *n));
    let expected: BTreeSet<&str> = organizations.map(|n| &*real.organizations[n].organization).collect();
    let listed: ListOrganizationsResponse = client.app("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    assert_eq!(listed.organizations.iter().map(|one| &*one.id).collect::<BTreeSet<_>>(), expected, "{case}");

    for (n, owner) in real.organizations.iter().enumerate() {
        let there = |place: &usize| {
            let above = model.above(Thing::Location(*place));
            let shared =
                above.iter().any(|one| matches!(one, Thing::Location(one) if model.shares.contains(&(*one, n))));
            let reads = model.permitted(who, Thing::Location(*place)).contains(&"read_location");
            reads && (model.locations[*place].0 == n || shared)
        };
        let expected = match model.sees(who, Thing::Organization(n)) {
            true => Ok((0..real.locations.len()).filter(there).map(|place| real.locations[place].clone()).collect()),
            false => Err(Code::NotFound),
        };
        let request = ListLocationsRequest { organization_id: owner.organization.clone() };
        let listed = client.app::<_, ListLocationsResponse>("ListLocations", request).await;
        let listed = listed.map(|listed| listed.locations.into_iter().map(|one| one.id).collect::<BTreeSet<_>>());
        assert_eq!(listed.map_err(|refused| refused.code()), expected, "{case}: the locations of {n}");
    }

    let readable = |machine: &usize| model.permitted(who, Thing::Machine(*machine)).contains(&"read_robot");
    let machines: Vec<usize> = (0..real.machines.len()).filter(readable).collect();
    for (place, location) in real.locations.iter().enumerate() {
        let here = machines.iter().filter(|machine| model.machines[**machine] == place);
        let expected = match model.sees(who, Thing::Location(place)) {
            true => Ok(here.map(|machine| real.machines[*machine].0.clone()).collect()),
            false => Err(Code::NotFound),
        };
        let request = ListRobotsRequest { location_id: location.clone() };
        let listed = client.app::<_, ListRobotsResponse>("ListRobots", request).await;
        let listed = listed.map(|listed| listed.robots.into_iter().map(|one| one.id).collect::<BTreeSet<_>>());
        assert_eq!(listed.map_err(|refused| refused.code()), expected, "{case}: the machines of {place}");
    }
    let request = ListMachineSummariesRequest::default();
    let listed: ListMachineSummariesResponse = client.app("ListMachineSummaries", request).await.unwrap();
    let listed = listed.location_summaries.into_iter().flat_map(|place| place.machine_summaries);
    let expected: BTreeSet<String> = machines.iter().map(|machine| real.machines[*machine].0.clone()).collect();
    assert_eq!(listed.map(|one| one.machine_id).collect::<BTreeSet<_>>(), expected, "{case}: the overview");
}

/// Keys that have a role on a machine, with those of their roles that are on something seen.
async fn keys(real: &Real<'_>, model: &Model, who: Identity, case: &str) {
    for (n, (machine, _)) in real.machines.iter().enumerate() {
        let held = model.permitted(who, Thing::Machine(n));
        let expected = match (held.contains(&"write_robot"), held.is_empty()) {
            (true, _) => {
                let is_there =
                    |key: &Identity| model.roles.iter().any(|(of, on, _)| of == key && *on == Thing::Machine(n));
                let shown = |key: Identity| {
                    let seen = model.roles.iter().filter(|(of, on, _)| *of == key && model.sees(who, *on));
                    let roles = seen.map(|(_, on, role)| (real.id(*on).1.to_owned(), *role)).collect::<BTreeSet<_>>();
                    (real.somebody[key].id.clone(), roles)
                };
                Ok((2..real.somebody.len()).filter(is_there).map(shown).collect::<BTreeMap<_, _>>())
            }
            (false, false) => Err(Code::PermissionDenied),
            (false, true) => Err(Code::NotFound),
        };
        let request = GetRobotApiKeysRequest { robot_id: machine.clone() };
        let listed = real.somebody[who].client.app::<_, GetRobotApiKeysResponse>("GetRobotAPIKeys", request).await;
        let role = |one: AuthorizationDetails| {
            let role = if one.authorization_id.ends_with("_owner") { Role::Owner } else { Role::Operator };
            (one.resource_id, role)
        };
        let listed = listed.map_err(|refused| refused.code()).map(|listed| {
            let keys = listed.api_keys.into_iter();
            keys.map(|key| (key.api_key.unwrap().id, key.authorizations.into_iter().map(role).collect())).collect()
        });
        assert_eq!(listed, expected, "{case}: {who} on the keys of machine {n}");
    }
}

#[tokio::test]
async fn who_reaches_what_is_what_a_naive_reading_says() {
    let world = World::new().await;
    let mut changes = [0; 13];
    for seed in SEEDS {
        let mut dice = Dice(seed);
        let (mut real, mut model) = Real::new(&world, seed, &mut dice).await;
        for step in 0..STEPS {
            let what = dice.below(changes.len());
            change(&mut real, &mut model, &mut dice, what).await;
            changes[what] += 1;
            let case = format!("seed {seed}, step {step}, after change {what}");
            // A person and a key; where a share has changed, and at the end, everybody.
            let asked = [dice.below(2), 2 + dice.below(2)];
            let all = matches!(what, 5 | 6) || step + 1 == STEPS;
            for who in (0..real.somebody.len()).filter(|who| all || asked.contains(who)) {
                told(&real, &model, who, &case).await;
            }
            let who = dice.below(real.somebody.len());
            parts(&real, &model, who, &case).await;
            fragments(&real, &model, who, &case).await;
            modules(&real, &model, who, &case).await;
            lists(&real, &model, who, &case).await;
            keys(&real, &model, who, &case).await;
        }
    }
    assert!(changes.iter().all(|count| *count > 5), "every kind of change was made: {changes:?}");
    world.end().await;
}
