//! Many at once, and a disk that is full: what was acknowledged stays, and nobody is told something else than it was.

pub(crate) mod world;

#[path = "under_load/full_disk.rs"]
mod full_disk;
#[path = "under_load/killed.rs"]
mod killed;
#[path = "under_load/pages.rs"]
pub(crate) mod pages;
#[path = "under_load/race.rs"]
pub(crate) mod race;
#[path = "under_load/writers/mod.rs"]
pub(crate) mod writers;

use world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_writers_of_one_revision_one_wins() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let clients = [owner.client.clone()];
    race::of_a_part(&owner, &clients).await;
    race::of_a_fragment(&owner, &clients).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_tails_are_true_while_lines_arrive() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let part = pages::part(&owner).await;
    let device = world.login("robot-secret", &part.id, &part.secrets[0].secret).await.unwrap();
    pages::are_true(&part.id, &[device], std::slice::from_ref(&owner.client)).await;
    world.end().await;
}
