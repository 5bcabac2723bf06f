//! The numbered changes, on PostgreSQL: all that lack, in one transaction, under the writers' lock.
//!
//! Servers that start at the same moment wait for each other here; the second finds nothing left to do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    super::{Migration, OpenError},
    Connection, fault, lock_of,
};

/// A change may have to rewrite a large table, or to wait for another server's.
const MIGRATE_WITHIN: Duration = Duration::from_secs(3600);

impl Connection {
    /// Makes the schema if it is not there and applies what it lacks.
    pub(in super::super) fn bring_up_to_date(&self, migrations: &[Migration]) -> Result<(), OpenError> {
        // Said, whatever the database's default is: who waited for the lock has to see what its holder did.
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
             SELECT pg_advisory_xact_lock({})",
            lock_of(self.server.schema)
        );
        self.say(&begin)?;
        let outcome = self.apply(migrations);
        if outcome.is_err() {
            let _ = self.say("ROLLBACK");
            return outcome;
        }
        self.say("COMMIT")
    }

    fn apply(&self, migrations: &[Migration]) -> Result<(), OpenError> {
        let schema = self.server.schema;
        // Only if it is not there: an administrator may have made it for a user who may make none.
        if self.count("SELECT COUNT(*) FROM pg_namespace WHERE nspname = CURRENT_SCHEMA()")? == 0 {
            self.say(&format!("CREATE SCHEMA {schema}"))?;
        }
        let tables = self.count("SELECT COUNT(*) FROM pg_tables WHERE schemaname = CURRENT_SCHEMA()")?;
        let list = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = CURRENT_SCHEMA() AND tablename = 'migrations'";
        if self.count(list)? == 0 {
            if tables > 0 {
                return Err(OpenError::Foreign { place: self.place() });
            }
            self.say(
                "CREATE TABLE migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)",
            )?;
        }
        let done = self.count("SELECT COALESCE(MAX(number), 0) FROM migrations")?;
        let known = migrations.last().map_or(0, |newest| newest.number);
        if done > known {
            return Err(OpenError::Newer { place: self.place(), found: done, known });
        }
        for Migration { number, name, sql } in migrations.iter().filter(|migration| migration.number > done) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
            let noted = format!("INSERT INTO migrations (number, name, applied_at) VALUES ({number}, '{name}', {now})");
            self.say(sql).and_then(|()| self.say(&noted)).map_err(|why| match why {
                OpenError::Unreachable { place, why } => {
                    OpenError::Migration { place, number: *number, name, source: why.into() }
                }
                other => other,
            })?;
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("{} (schema {})", self.server.address, self.server.schema)
    }

    fn say(&self, sql: &str) -> Result<(), OpenError> {
        self.asked(|line, client| line.run(MIGRATE_WITHIN, client.batch_execute(sql)))
    }

    fn count(&self, sql: &'static str) -> Result<i64, OpenError> {
        let row = self.asked(|line, client| line.run(MIGRATE_WITHIN, client.query_one(sql, &[])))?;
        row.try_get(0).map_err(|why| self.failed(fault::sentence(&why)))
    }

    fn asked<T>(
        &self,
        work: impl FnOnce(&mut super::Line, &super::Client) -> Result<Result<T, tokio_postgres::Error>, super::Gone>,
    ) -> Result<T, OpenError> {
        let mut live = self.live.borrow_mut();
        let Some(super::Live { client, line, .. }) = live.as_mut() else {
            return Err(self.failed("the connection was lost".to_owned()));
        };
        match work(line, client) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) => Err(self.failed(fault::sentence(&why))),
            Err(gone) => Err(self.failed(fault::of_gone(&gone))),
        }
    }

    fn failed(&self, why: String) -> OpenError {
        OpenError::Unreachable { place: self.place(), why }
    }
}
