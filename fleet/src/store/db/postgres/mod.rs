//! The PostgreSQL driver: connections that come back, prepared statements, one writer at a time.
//!
//! Each of our databases is a schema of its own. A reader's transaction is one snapshot (REPEATABLE READ, READ ONLY);
//! its BEGIN travels with its first statement and its COMMIT is not waited for, so a point read is one round trip.
//! A writer takes an advisory lock of the schema before anything else, so that writers of all servers run one after
//! another, as SQLite's single writer does, and what a transaction read is still true when it commits.
//!
//! A lost connection fails what was running with [`DbError::Unreachable`]; the next use connects again, after a pause
//! that grows. Idle connections that were closed meanwhile are noticed before they are used.

mod address;
mod fault;
mod gate;
mod listen;
mod migrate;
mod socket;
mod tls;

pub use address::{Address, AddressError};
pub(super) use listen::listen;
pub use tls::TlsSetupError;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use tokio_postgres::{
    Client, NoTls, Statement,
    config::Host,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use self::{
    gate::Gate,
    socket::{Gone, Line, Socket, Wire},
};
use super::{Arg, DbError, Durability, OpenError, Row};

/// What the server is told about every statement: none of ours may take this long.
const STATEMENT_WITHIN: Duration = Duration::from_secs(30);
/// When the line is given up although the server should have ended the statement.
const ANSWER_WITHIN: Duration = Duration::from_secs(35);

/// What all connections of one database share.
pub(super) struct Server {
    address: Address,
    tls: Option<tls::Connect>,
    schema: &'static str,
    durability: Durability,
    gate: Gate,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
}

/// One connection, or the place of one that is opened when it is needed.
pub(super) struct Connection {
    server: Arc<Server>,
    purpose: Purpose,
    live: RefCell<Option<Live>>,
    /// A snapshot was asked for and has not been begun yet.
    to_begin: Cell<bool>,
    begun: Cell<bool>,
    /// A statement was refused: until a rollback the server runs nothing more, and would turn COMMIT into ROLLBACK.
    spoilt: Cell<bool>,
}

struct Live {
    client: Client,
    line: Line,
    /// Text of a statement (by place and length: all are `'static`) → prepared.
    prepared: HashMap<(usize, usize), Statement>,
}

impl Server {
    pub(super) fn new(
        address: &Address,
        schema: &'static str,
        durability: Durability,
    ) -> Result<Arc<Self>, TlsSetupError> {
        let tls = match (&address.host, address.tls) {
            (Host::Tcp(name), true) => Some(tls::Connect::new(name, address.roots.as_deref())?),
            _ => None,
        };
        Ok(Arc::new(Self { address: address.clone(), tls, schema, durability, gate: Gate::default() }))
    }

    fn connect(&self) -> Result<Live, String> {
        self.connect_and(|_| {})
    }

    /// `hear` is called with the name of each channel on which something arrives.
    fn connect_and(&self, hear: impl Fn(&str) + Send + 'static) -> Result<Live, String> {
        let socket = Socket::connect(&self.address.host, self.address.port).map_err(|why| why.to_string())?;
        let mut line = Line::new(socket.clone());
        let config = &self.address.config;
        let said = |outcome: Result<Result<(Client, Wire), tokio_postgres::Error>, Gone>| match outcome {
            Ok(Ok(pair)) => Ok(pair),
            Ok(Err(why)) => Err(fault::sentence(&why)),
            Err(gone) => Err(fault::of_gone(&gone)),
        };
        let (client, wire) = said(match &self.tls {
            Some(tls) => line.run(gate::ATTEMPT_WITHIN, async {
                let (client, connection) = config.connect_raw(socket, tls.clone()).await?;
                Ok((client, listen::wire(connection, hear)))
            }),
            None => line.run(gate::ATTEMPT_WITHIN, async {
                let (client, connection) = config.connect_raw(socket, NoTls).await?;
                Ok((client, listen::wire(connection, hear)))
            }),
        })?;
        line.wire = Some(wire);
        // The server notices a lost client too: it must not keep the writers' lock for one that is gone.
        let synchronous = if self.durability == Durability::PowerCut { "SET synchronous_commit = on;" } else { "" };
        let session = format!(
            "SET search_path = {schema}; SET client_min_messages = warning; SET jit = off; {synchronous}
             SET statement_timeout = {timeout}; SET lock_timeout = {timeout};
             SET idle_in_transaction_session_timeout = {timeout};
             SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
             SET tcp_user_timeout = 10000",
            schema = self.schema,
            timeout = STATEMENT_WITHIN.as_millis(),
        );
        match line.run(gate::ATTEMPT_WITHIN, client.batch_execute(&session)) {
            Ok(Ok(())) => Ok(Live { client, line, prepared: HashMap::new() }),
            Ok(Err(why)) => Err(fault::sentence(&why)),
            Err(gone) => Err(fault::of_gone(&gone)),
        }
    }
}

impl Connection {
    pub(super) fn new(server: Arc<Server>, purpose: Purpose) -> Self {
        let live = RefCell::default();
        Self { server, purpose, live, to_begin: Cell::default(), begun: Cell::default(), spoilt: Cell::default() }
    }

    /// The first connection, for the start: says why there is none.
    pub(super) fn open_first(server: Arc<Server>) -> Result<Self, OpenError> {
        let unreachable = |why| OpenError::Unreachable { place: server.address.to_string(), why };
        let live = server.connect().map_err(unreachable)?;
        let connection = Self::new(server.clone(), Purpose::Write);
        connection.live.replace(Some(live));
        Ok(connection)
    }

    pub(super) fn query<T>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
        limit: usize,
        mut row: impl FnMut(&Row<'_>) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        self.begin_if_asked()?;
        let rows = self.with_statement(sql, |line, client, statement| {
            let (parameters, references);
            parameters = params(args);
            references = refs(&parameters);
            line.run(ANSWER_WITHIN, client.query(statement, &references))
        })?;
        // The connection is free again: `row` may run other statements.
        rows.iter().take(limit).map(|found| row(&Row::of_postgres(found))).collect()
    }

    pub(super) fn execute(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<usize, DbError> {
        self.begin_if_asked()?;
        let changed = self.with_statement(sql, |line, client, statement| {
            let (parameters, references);
            parameters = params(args);
            references = refs(&parameters);
            line.run(ANSWER_WITHIN, client.execute(statement, &references))
        })?;
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    pub(super) fn begin_snapshot(&self) -> Result<(), DbError> {
        self.ensure_live()?;
        self.to_begin.set(true);
        self.begun.set(false);
        self.spoilt.set(false);
        Ok(())
    }

    pub(super) fn end_snapshot(&self) {
        self.to_begin.set(false);
        if !self.begun.replace(false) {
            return;
        }
        let mut live = self.live.borrow_mut();
        let ended = live.as_mut().map(|Live { client, line, .. }| {
            line.start(client.batch_execute("COMMIT"));
            line.flush()
        });
        if let Some(Err(gone)) = ended {
            self.lost(&mut live, &fault::of_gone(&gone));
        }
    }

    /// Waits until no other server writes to this schema.
    pub(super) fn begin_write(&self) -> Result<(), DbError> {
        self.ensure_live()?;
        self.spoilt.set(false);
        let schema = self.server.schema;
        let done = self.control_now(&format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({})",
            lock_of(schema)
        ));
        if done.is_err() {
            let _ = self.control_now("ROLLBACK");
        }
        done
    }

    pub(super) fn commit(&self) -> Result<(), DbError> {
        self.control_now("COMMIT")
    }

    pub(super) fn rollback(&self) -> Result<(), DbError> {
        self.spoilt.set(false);
        self.control_now("ROLLBACK")
    }

    /// After the commit, in a transaction of its own: a server whose queue of notifications is full refuses only this.
    pub(super) fn announce(&self) {
        let mut live = self.live.borrow_mut();
        if let Some(Live { client, line, .. }) = live.as_mut() {
            line.start(client.batch_execute(&format!("NOTIFY {}", self.server.schema)));
            // A line that was lost is noticed by the next write.
            let _ = line.flush();
        }
    }

    pub(super) fn savepoint(&self) -> Result<(), DbError> {
        self.control_later("SAVEPOINT job")
    }

    pub(super) fn rollback_to(&self) -> Result<(), DbError> {
        self.control_now("ROLLBACK TO job")?;
        self.spoilt.set(false);
        Ok(())
    }

    pub(super) fn release(&self) -> Result<(), DbError> {
        self.control_later("RELEASE job")
    }

    /// The transaction can go on, after a rollback to the savepoint at the latest.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.live.borrow().is_some()
    }

    /// A statement was refused and nothing rolled back yet: nothing of the transaction can be kept.
    pub(super) fn is_spoilt(&self) -> bool {
        self.spoilt.get() || self.live.borrow().is_none()
    }

    fn ensure_live(&self) -> Result<(), DbError> {
        let mut live = self.live.borrow_mut();
        // Closed while it was idle: nothing is lost yet, so nobody has to hear of it.
        if let Some(Err(gone)) = live.as_mut().map(|live| live.line.flush()) {
            tracing::info!(why = fault::of_gone(&gone), "the database closed an idle connection");
            *live = None;
        }
        if live.is_some() {
            return Ok(());
        }
        let gate = &self.server.gate;
        if !gate.admits(Instant::now()) {
            return Err(DbError::Unreachable);
        }
        match self.server.connect() {
            Ok(new) => {
                if gate.succeeded() {
                    tracing::info!(database = %self.server.address, "the database is reached again");
                }
                *live = Some(new);
                Ok(())
            }
            Err(why) => {
                gate.failed(Instant::now());
                tracing::warn!(database = %self.server.address, why, "the database cannot be reached");
                Err(DbError::Unreachable)
            }
        }
    }

    fn begin_if_asked(&self) -> Result<(), DbError> {
        if self.to_begin.replace(false) {
            self.begun.set(true);
            self.control_later("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")?;
        }
        Ok(())
    }

    /// Sent with the next statement; if it fails, that one does.
    fn control_later(&self, sql: &str) -> Result<(), DbError> {
        let mut live = self.live.borrow_mut();
        let Live { client, line, .. } = live.as_mut().ok_or(DbError::Unreachable)?;
        line.start(client.batch_execute(sql));
        Ok(())
    }

    fn control_now(&self, sql: &str) -> Result<(), DbError> {
        self.with_live(|line, client, _| line.run(ANSWER_WITHIN, client.batch_execute(sql)))
    }

    fn with_statement<T>(
        &self,
        sql: &'static str,
        work: impl FnOnce(&mut Line, &Client, &Statement) -> Result<Result<T, tokio_postgres::Error>, Gone>,
    ) -> Result<T, DbError> {
        self.with_live(|line, client, prepared| {
            let key = (sql.as_ptr().addr(), sql.len());
            let statement = match prepared.get(&key) {
                Some(statement) => statement.clone(),
                None => match line.run(ANSWER_WITHIN, client.prepare(sql))? {
                    Ok(statement) => prepared.entry(key).or_insert(statement).clone(),
                    Err(why) => return Ok(Err(why)),
                },
            };
            work(line, client, &statement)
        })
    }

    fn with_live<T>(
        &self,
        work: impl FnOnce(
            &mut Line,
            &Client,
            &mut HashMap<(usize, usize), Statement>,
        ) -> Result<Result<T, tokio_postgres::Error>, Gone>,
    ) -> Result<T, DbError> {
        let mut live = self.live.borrow_mut();
        let Live { client, line, prepared } = live.as_mut().ok_or(DbError::Unreachable)?;
        match work(line, client, prepared) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) if fault::ends_connection(&why) => {
                self.lost(&mut live, &fault::sentence(&why));
                Err(DbError::Unreachable)
            }
            Ok(Err(why)) => {
                self.spoilt.set(true);
                Err(fault::of_statement(&why))
            }
            Err(gone) => {
                self.lost(&mut live, &fault::of_gone(&gone));
                Err(DbError::Unreachable)
            }
        }
    }

    fn lost(&self, live: &mut Option<Live>, why: &str) {
        *live = None;
        self.server.gate.failed(Instant::now());
        tracing::warn!(database = %self.server.address, purpose = ?self.purpose, why, "lost a connection to the database");
    }
}

/// The key of the lock that writers of a schema take, as SQL.
fn lock_of(schema: &str) -> String {
    format!("hashtextextended('platform-fleet writer of {schema}', 0)")
}

/// A parameter as the driver wants it. Its Debug shows no value: the driver's own debug log prints it.
struct Param<'a>(&'a Arg<'a>);

fn params<'a>(args: &'a [Arg<'a>]) -> Vec<Param<'a>> {
    args.iter().map(Param).collect()
}

fn refs<'p>(params: &'p [Param<'p>]) -> Vec<&'p (dyn ToSql + Sync)> {
    params.iter().map(|param| param as &(dyn ToSql + Sync)).collect()
}

impl fmt::Debug for Param<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

type ConversionError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Param<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, ConversionError> {
        match (self.0, kind) {
            (Arg::Null, _) => Ok(IsNull::Yes),
            (Arg::Int(number), &Type::INT4) => i32::try_from(*number)?.to_sql(kind, out),
            (Arg::Int(number), &Type::INT8) => number.to_sql(kind, out),
            (Arg::Text(text), _) if <&str as ToSql>::accepts(kind) => text.to_sql(kind, out),
            (Arg::Blob(bytes), &Type::BYTEA) => bytes.to_sql(kind, out),
            (_, kind) => Err(format!("a parameter that the server takes for {kind} is something else").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A whole number of whatever width the server chose.
pub(super) struct Whole(pub(super) i64);

impl<'a> FromSql<'a> for Whole {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, ConversionError> {
        Ok(Self(match *kind {
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT4 | Type::INT8)
    }
}

#[cfg(test)]
mod tests;
