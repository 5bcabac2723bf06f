//! Log blocks, and what was taken last from each source.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use super::{Arg, Db, DbError, Tx};
use crate::{
    clock::Millis,
    logs::{
        Source, Taken,
        block::{self, BLOCK_SPAN_MAX, Block},
        order::{Merge, Order, Place},
        query::{PAGE_MAX_BYTES, Page, Query},
    },
};
use prost::Message as _;

/// Blocks read in one go: a page of 100 needs one or two; more only when a filter lets little pass.
const BLOCKS_PER_READ: i64 = 16;
/// Blocks that one turn of a search may open before other readers get theirs (a block is at most 256 KiB).
const BLOCKS_PER_TURN: usize = 128;
/// Blocks deleted in one transaction: about a millisecond.
const BLOCKS_PER_DELETE: i64 = 200;

/// A batch ready to be stored.
pub(crate) struct Batch {
    pub(crate) part_id: String,
    pub(crate) source: Source,
    /// For unnumbered sources.
    pub(crate) digest: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) now: Millis,
}

/// Numbers blocks in the order of their commits: microseconds since 1970, later where several came at once or a clock
/// was set back. Taken inside the transaction, because several servers may number: their writers run one after another.
#[derive(Debug, Default)]
pub(crate) struct BlockIds {
    last: AtomicI64,
}

/// Microseconds in a millisecond of [`Millis`]: what a block's id is counted in.
const IDS_PER_MILLI: i64 = 1_000;

impl BlockIds {
    /// The first of `count` ids in a row.
    fn take(&self, tx: &Tx<'_>, now: Millis, count: usize) -> Result<i64, DbError> {
        // Both: the newest may have been deleted, and another server may have numbered since.
        let known = self.last.load(Relaxed).max(newest(tx)?);
        let first = known.saturating_add(1).max(now.saturating_mul(IDS_PER_MILLI));
        let last = first.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        self.last.fetch_max(last, Relaxed);
        Ok(first)
    }
}

/// Stores a batch unless its source delivered it before: both in one transaction.
pub(crate) async fn insert(db: &Db, ids: Arc<BlockIds>, batch: Batch) -> Result<Taken, DbError> {
    db.write(move |tx| insert_in(tx, &ids, &batch)).await
}

fn insert_in(tx: &Tx<'_>, ids: &BlockIds, batch: &Batch) -> Result<Taken, DbError> {
    let part = Arg::from(&batch.part_id);
    let acknowledged = match &batch.source {
        Source::Spool { id, number } => {
            let newer = tx.run(
                "INSERT INTO log_sources (part_id, source, number, digest, seen_ms) VALUES ($1, $2, $3, '', $4)
                 ON CONFLICT (part_id, source) DO UPDATE SET number = excluded.number, seen_ms = excluded.seen_ms
                 WHERE log_sources.number < excluded.number",
                &[part, id.into(), (*number).into(), batch.now.into()],
            )?;
            if newer == 0 {
                let kept = tx.first(
                    "SELECT number FROM log_sources WHERE part_id = $1 AND source = $2",
                    &[part, id.into()],
                    |row| row.int(0),
                )?;
                return Ok(Taken { acknowledged: kept.unwrap_or(*number), repeat: true });
            }
            *number
        }
        Source::Unnumbered => {
            let other = tx.run(
                "INSERT INTO log_sources (part_id, source, number, digest, seen_ms) VALUES ($1, '', 0, $2, $3)
                 ON CONFLICT (part_id, source) DO UPDATE SET digest = excluded.digest, seen_ms = excluded.seen_ms
                 WHERE log_sources.digest <> excluded.digest",
                &[part, (&batch.digest).into(), batch.now.into()],
            )?;
            if other == 0 {
                return Ok(Taken { acknowledged: 0, repeat: true });
            }
            0
        }
    };
    let first = ids.take(tx, batch.now, batch.blocks.len())?;
    tx.announce();
    for (block, id) in batch.blocks.iter().zip(first..) {
        tx.run(
            "INSERT INTO log_blocks (id, part_id, first_ms, last_ms, levels, bytes, body)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                id.into(),
                part,
                block.first.into(),
                block.last.into(),
                block.levels.0.into(),
                i64::try_from(block.body.len()).unwrap_or(i64::MAX).into(),
                Arg::Blob(&block.body),
            ],
        )?;
    }
    Ok(Taken { acknowledged, repeat: false })
}

/// The id of the newest block.
pub(crate) fn newest(tx: &Tx<'_>) -> Result<i64, DbError> {
    let newest = tx.first("SELECT MAX(id) FROM log_blocks", &[], |row| row.maybe_int(0))?;
    Ok(newest.flatten().unwrap_or_default())
}

/// (id, part) of the blocks after one, in the order of their commits.
pub(crate) fn after(tx: &Tx<'_>, id: i64, limit: i64) -> Result<Vec<(i64, String)>, DbError> {
    let sql = "SELECT id, part_id FROM log_blocks WHERE id > $1 ORDER BY id LIMIT $2";
    tx.all(sql, &[id.into(), limit.into()], |row| Ok((row.int(0)?, row.text(1)?)))
}

/// A block's body, if it is still there.
pub(crate) fn body(tx: &Tx<'_>, id: i64) -> Result<Option<Vec<u8>>, DbError> {
    tx.first("SELECT body FROM log_blocks WHERE id = $1", &[id.into()], |row| Ok(row.blob(0)?.to_vec()))
}

/// One page of a part's entries. Looks one entry further than the page, so that a token is given only where it leads
/// to something.
pub(crate) async fn page(db: &Db, part_id: &str, query: Query) -> Result<Page, DbError> {
    let mut search = Search::new(part_id, query);
    loop {
        search = db.scan(move |tx| search.turn(tx)).await?;
        if search.done {
            return Ok(search.into_page());
        }
    }
}

/// A page being gathered, over as many turns as it takes.
struct Search {
    part_id: String,
    query: Query,
    merge: Merge,
    /// The outer edge and id of the last block opened.
    edge: (Millis, i64),
    found: Vec<(Place, api::pb::platform::common::v1::LogEntry)>,
    bytes: usize,
    done: bool,
}

struct Opened {
    id: i64,
    edge: Millis,
    body: Vec<u8>,
}

impl Search {
    fn new(part_id: &str, query: Query) -> Self {
        // A block that holds the token's entry, or one of its time, begins at most a span away from it.
        let edge = match (query.order, query.after) {
            (Order::Falling, Some(after)) => {
                (after.at.saturating_add(BLOCK_SPAN_MAX).min(query.wanted.to.saturating_add(BLOCK_SPAN_MAX)), i64::MAX)
            }
            (Order::Falling, None) => (query.wanted.to.saturating_add(BLOCK_SPAN_MAX), i64::MAX),
            (Order::Rising, Some(after)) => (
                after.at.saturating_sub(BLOCK_SPAN_MAX).max(query.wanted.from.saturating_sub(BLOCK_SPAN_MAX)),
                i64::MIN,
            ),
            (Order::Rising, None) => (query.wanted.from.saturating_sub(BLOCK_SPAN_MAX), i64::MIN),
        };
        let merge = Merge::new(query.order);
        Self { part_id: part_id.to_owned(), query, merge, edge, found: Vec::new(), bytes: 0, done: false }
    }

    /// Opens blocks until the page is full, the part is searched through, or others should have a turn.
    fn turn(mut self, tx: &Tx<'_>) -> Result<Self, DbError> {
        let mut opened = 0;
        while !self.done && opened < BLOCKS_PER_TURN {
            let blocks = self.read(tx)?;
            let last_of_all = blocks.len() < BLOCKS_PER_READ as usize;
            opened += blocks.len();
            for block in blocks {
                self.collect(Some(block.edge));
                if self.done {
                    return Ok(self);
                }
                self.edge = (block.edge, block.id);
                let query = &self.query;
                let passes = |message: &str| query.wanted.passes(message);
                let filter: Option<&dyn Fn(&str) -> bool> = (!query.wanted.is_unfiltered()).then_some(&passes);
                self.merge.open(block.id, block::find(block.id, block.body, filter), |place, entry| {
                    query.is_due(place) && query.wanted.spans(place.at) && query.wanted.admits(entry)
                });
            }
            if last_of_all {
                self.collect(None);
                self.done = true;
            }
        }
        Ok(self)
    }

    /// The next blocks by their outer edge, with something of the wanted levels and time in them.
    fn read(&self, tx: &Tx<'_>) -> Result<Vec<Opened>, DbError> {
        let wanted = &self.query.wanted;
        let (from, to) = match (self.query.order, self.query.after) {
            (Order::Falling, Some(after)) => (wanted.from, wanted.to.min(after.at)),
            (Order::Rising, Some(after)) => (wanted.from.max(after.at), wanted.to),
            (_, None) => (wanted.from, wanted.to),
        };
        let args = [
            Arg::from(&self.part_id),
            self.edge.0.into(),
            self.edge.1.into(),
            from.into(),
            to.into(),
            wanted.levels.0.into(),
            BLOCKS_PER_READ.into(),
        ];
        let sql = match self.query.order {
            Order::Falling => {
                "SELECT id, last_ms, body FROM log_blocks
                 WHERE part_id = $1 AND (last_ms, id) < ($2, $3) AND last_ms >= $4 AND first_ms <= $5 AND (levels & $6) <> 0
                 ORDER BY last_ms DESC, id DESC LIMIT $7"
            }
            Order::Rising => {
                "SELECT id, first_ms, body FROM log_blocks
                 WHERE part_id = $1 AND (first_ms, id) > ($2, $3) AND last_ms >= $4 AND first_ms <= $5 AND (levels & $6) <> 0
                 ORDER BY first_ms, id LIMIT $7"
            }
        };
        tx.all(sql, &args, |row| Ok(Opened { id: row.int(0)?, edge: row.int(1)?, body: row.blob(2)?.to_vec() }))
    }

    /// Takes out what is certain to come next, until one more than the page is there.
    fn collect(&mut self, edge: Option<Millis>) {
        while !self.done
            && let Some(next) = self.merge.next(edge)
        {
            self.bytes += next.1.encoded_len();
            self.found.push(next);
            // The entry beyond the page stays only to prove that there is one.
            self.done = self.found.len() > self.query.page || (self.bytes > PAGE_MAX_BYTES && self.found.len() > 1);
        }
    }

    fn into_page(mut self) -> Page {
        let beyond = self.found.len() > self.query.page || self.bytes > PAGE_MAX_BYTES && self.found.len() > 1;
        if beyond {
            self.found.pop();
        }
        let next = match self.found.last() {
            Some((place, _)) if beyond => self.query.token(*place),
            _ => String::new(),
        };
        Page { entries: self.found.into_iter().map(|(_, entry)| block::shown(entry)).collect(), next }
    }
}

/// Forgets a part.
pub(crate) async fn forget(db: &Db, part_id: &str) -> Result<(), DbError> {
    while delete_oldest(db, Some(part_id.to_owned()), i64::MAX).await?.0 > 0 {}
    let part_id = part_id.to_owned();
    db.write(move |tx| tx.run("DELETE FROM log_sources WHERE part_id = $1", &[(&part_id).into()]).map(drop)).await
}

/// Deletes some blocks that arrived before a moment; how many.
pub(crate) async fn delete_arrived_before(db: &Db, moment: Millis) -> Result<usize, DbError> {
    let id = moment.saturating_mul(IDS_PER_MILLI);
    db.write(move |tx| {
        tx.run(
            "DELETE FROM log_blocks WHERE id IN (SELECT id FROM log_blocks WHERE id < $1 ORDER BY id LIMIT $2)",
            &[id.into(), BLOCKS_PER_DELETE.into()],
        )
    })
    .await
}

/// Deletes the oldest blocks (of one part by their entries' time, of all parts by their arrival) until `excess` bytes
/// are gone; how many blocks and bytes went.
pub(crate) async fn delete_oldest(db: &Db, part_id: Option<String>, excess: i64) -> Result<(usize, i64), DbError> {
    let (mut blocks, mut freed) = (0, 0);
    while freed < excess {
        let (part_id, left) = (part_id.clone(), excess - freed);
        let (deleted, bytes) = db.write(move |tx| delete_some(tx, part_id.as_deref(), left)).await?;
        if deleted == 0 {
            break;
        }
        blocks += deleted;
        freed += bytes;
    }
    Ok((blocks, freed))
}

fn delete_some(tx: &Tx<'_>, part_id: Option<&str>, excess: i64) -> Result<(usize, i64), DbError> {
    let pair = |row: &super::Row<'_>| Ok((row.int(0)?, row.int(1)?));
    let oldest = match part_id {
        Some(part_id) => tx.all(
            "SELECT id, bytes FROM log_blocks WHERE part_id = $1 ORDER BY last_ms, id LIMIT $2",
            &[part_id.into(), BLOCKS_PER_DELETE.into()],
            pair,
        )?,
        None => tx.all("SELECT id, bytes FROM log_blocks ORDER BY id LIMIT $1", &[BLOCKS_PER_DELETE.into()], pair)?,
    };
    let (mut blocks, mut freed) = (0, 0);
    for (id, bytes) in oldest {
        if freed >= excess {
            break;
        }
        tx.run("DELETE FROM log_blocks WHERE id = $1", &[id.into()])?;
        blocks += 1;
        freed += bytes;
    }
    Ok((blocks, freed))
}

/// Bytes kept of each part.
pub(crate) async fn sizes(db: &Db) -> Result<Vec<(String, i64)>, DbError> {
    db.scan(|tx| {
        tx.all(
            "SELECT part_id, CAST(SUM(bytes) AS BIGINT) FROM log_blocks GROUP BY part_id ORDER BY part_id",
            &[],
            |row| Ok((row.text(0)?, row.int(1)?)),
        )
    })
    .await
}

/// Forgets sources that were silent since `moment`, and of each part all but the `kept` that spoke last.
pub(crate) async fn forget_sources(db: &Db, moment: Millis, kept: i64) -> Result<(), DbError> {
    db.write(move |tx| {
        tx.run("DELETE FROM log_sources WHERE seen_ms < $1", &[moment.into()])?;
        let crowded: Vec<String> =
            tx.all("SELECT part_id FROM log_sources GROUP BY part_id HAVING COUNT(*) > $1", &[kept.into()], |row| {
                row.text(0)
            })?;
        for part_id in &crowded {
            tx.run(
                "DELETE FROM log_sources WHERE part_id = $1 AND source NOT IN
                 (SELECT source FROM log_sources WHERE part_id = $1 ORDER BY seen_ms DESC, source LIMIT $2)",
                &[part_id.into(), kept.into()],
            )?;
        }
        Ok(())
    })
    .await
}
