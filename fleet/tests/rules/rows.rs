//! All that the database holds, and an audit log that takes nothing.

use fleet::store::DbError;

use super::world::{World, engine::ON_POSTGRES};

/// Tables and their columns; which server has which duty is nobody's change.
const COLUMNS: &str = match ON_POSTGRES {
    true => {
        "SELECT c.table_name, c.column_name FROM information_schema.columns c
         WHERE c.table_schema = current_schema() AND c.table_name <> 'duties' ORDER BY c.table_name, c.ordinal_position"
    }
    false => {
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.name <> 'duties' ORDER BY m.name, c.cid"
    }
};

/// One statement that reads every row of every table as a text.
#[derive(Clone, Copy)]
pub(super) struct Rows(&'static str);

impl Rows {
    pub(super) async fn of(world: &World) -> Self {
        let store = &world.server.context.store;
        let columns = store.read::<_, DbError>(|tx| tx.all(COLUMNS, &[], |row| Ok((row.text(0)?, row.text(1)?)))).await;
        let mut selects: Vec<(String, String)> = Vec::new();
        for (table, column) in columns.unwrap() {
            let quoted = match ON_POSTGRES {
                true => format!("quote_nullable({column}::text)"),
                false => format!("quote({column})"),
            };
            match selects.last_mut().filter(|(last, _)| *last == table) {
                Some((_, texts)) => *texts += &format!(" || ', {column} ' || {quoted}"),
                None => selects.push((table, format!("'{column} ' || {quoted}"))),
            }
        }
        let selects = selects.iter().map(|(table, texts)| format!("SELECT '{table}: ' || {texts} FROM {table}"));
        // One, and as long as the test: the store takes no texts that are made while it runs.
        Self(selects.collect::<Vec<_>>().join(" UNION ALL ").leak())
    }

    /// In an order of their own.
    pub(super) async fn read(self, world: &World) -> Vec<String> {
        let store = &world.server.context.store;
        let mut rows =
            store.read::<_, DbError>(move |tx| tx.all(self.0, &[], |row| row.text(0))).await.expect("every row");
        rows.sort();
        rows
    }
}

/// From now on the audit log takes no row.
pub(super) async fn forbid(world: &World) {
    run(
        world,
        match ON_POSTGRES {
            true => &[
                "CREATE OR REPLACE FUNCTION never() RETURNS trigger LANGUAGE plpgsql
                 AS $$ BEGIN RAISE EXCEPTION 'never'; END $$",
                "CREATE TRIGGER never BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION never()",
            ],
            false => &["CREATE TRIGGER never BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'never'); END"],
        },
    )
    .await;
}

/// As before.
pub(super) async fn allow(world: &World) {
    run(world, if ON_POSTGRES { &["DROP TRIGGER never ON audit"] } else { &["DROP TRIGGER never"] }).await;
}

async fn run(world: &World, statements: &'static [&'static str]) {
    let work = |tx: &fleet::store::Tx<'_>| statements.iter().try_for_each(|sql| tx.run(sql, &[]).map(drop));
    world.server.context.store.write::<_, DbError>(work).await.unwrap();
}
