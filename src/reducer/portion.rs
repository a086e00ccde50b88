//! Some nodes of a job with their partials, as bytes: what is shipped, kept and gone on from.

use crate::bytes::{reserve, u32_at, u64_at};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::fold::statistic::Incoming;
use crate::fold::{Node, Statistic};
use crate::plan::{Cursor, CursorKind};

use super::{Job, Report};

const MAGIC: [u8; 8] = *b"HWFOLD\0\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const NODE_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// A node and what is known of its rows.
pub type Held<S> = (Node, <S as Statistic>::Partial);

/// The same as it lies in the bytes of a portion.
pub type Arrived<'a, S> = (Node, <S as Statistic>::Incoming<'a>);

/// Writes and reads portions of one job.
pub struct Portion<'a, S> {
    job: &'a Job,
    statistic: &'a S,
}

impl<'a, S: Statistic> Portion<'a, S> {
    /// Portions of `job`, which folds `statistic`.
    pub fn of(job: &'a Job, statistic: &'a S) -> Self {
        Self { job, statistic }
    }

    /// The bytes of these nodes, which are in the order of their chunks.
    ///
    /// # Errors
    /// `LimitExceeded` when there is no memory.
    pub fn encode<'p>(&self, nodes: impl Iterator<Item = (Node, &'p S::Partial)>) -> Result<Vec<u8>>
    where
        S::Partial: 'p,
    {
        let nodes: Vec<(Node, &S::Partial)> = nodes.collect();
        let partial_bytes = self.partial_bytes(nodes.len());
        let counts = [("nodes", nodes.len() as u64), ("partial_bytes", partial_bytes as u64)];
        let cursor = self.job.describe(&counts)?;
        // With room for what makes a report of it, since it can be large.
        let all = HEADER_BYTES + cursor.len() + nodes.len() * (NODE_BYTES + partial_bytes);
        let mut bytes: Vec<u8> = reserve(all + HASH_BYTES + Report::TRAILER_BYTES)
            .context(|| format!("{} partials of {partial_bytes} bytes each", nodes.len()))?;
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((cursor.len() as u64).to_le_bytes());
        bytes.extend(cursor);
        for (node, partial) in nodes {
            bytes.extend(node.level().to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(node.index().to_le_bytes());
            self.statistic.write(partial, &mut bytes);
        }
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        Ok(bytes)
    }

    /// The nodes of a portion of this job.
    ///
    /// # Errors
    /// As [`Portion::read`], and `LimitExceeded` when there is no memory.
    pub fn decode(&self, bytes: &[u8]) -> Result<Vec<Held<S>>> {
        let own = |(node, arrived): Arrived<'_, S>| {
            Ok((node, arrived.join(Vec::new(), &mut Vec::new())?))
        };
        self.read(bytes)?.into_iter().map(own).collect()
    }

    /// Looks through a portion of this job; its partials stay where they are.
    ///
    /// # Errors
    /// `NotOurs`, `Version` or `Corrupt` when the bytes are no whole portion, `PlanMismatch` when
    /// they are of another job, naming each field that differs.
    pub fn read<'b>(&self, bytes: &'b [u8]) -> Result<Vec<Arrived<'b, S>>> {
        let (cursor, mut rest) = open(bytes)?;
        let plan = self.job.plan();
        plan.compare(cursor.plan()).context(|| "these partials are of another job")?;
        let count = |name: &str| {
            let count = cursor.position().get(name).and_then(|count| usize::try_from(count).ok());
            count.ok_or_else(|| damaged(&format!("it has no count {name:?}")))
        };
        let (nodes, partial_bytes) = (count("nodes")?, count("partial_bytes")?);
        let wanted = self.partial_bytes(nodes);
        if partial_bytes != wanted {
            return Err(damaged(&format!(
                "its partials are said to have {partial_bytes} bytes, where {wanted} were expected"
            )));
        }
        let expected = NODE_BYTES.checked_add(partial_bytes).and_then(|one| one.checked_mul(nodes));
        if expected != Some(rest.len()) {
            return Err(damaged(&format!(
                "{nodes} nodes of {partial_bytes} bytes do not fill its {} bytes",
                rest.len()
            )));
        }
        let mut arrived = Vec::with_capacity(nodes);
        let mut covered = 0;
        for _ in 0..nodes {
            let (one, after) = rest.split_at(NODE_BYTES + partial_bytes);
            rest = after;
            let node = self.node(one).filter(|node| node.chunks().start >= covered);
            let node =
                node.ok_or_else(|| damaged("its nodes are not nodes of the job in order"))?;
            covered = node.chunks().end;
            let partial = self.statistic.read(&one[NODE_BYTES..])?;
            let rows =
                self.job.rows_of(covered - 1).end - self.job.rows_of(node.chunks().start).start;
            if !self.statistic.fits_rows(&partial, rows) {
                return Err(damaged(&format!("what it has for {node} is not of {rows} rows")));
            }
            arrived.push((node, partial));
        }
        Ok(arrived)
    }

    /// The length of each of so many partials: of none it is 0, so that nothing has two forms.
    fn partial_bytes(&self, nodes: usize) -> usize {
        if nodes == 0 { 0 } else { self.statistic.partial_bytes() }
    }

    fn node(&self, bytes: &[u8]) -> Option<Node> {
        if u32_at(bytes, 4)? != 0 {
            return None;
        }
        let node = Node::new(u32_at(bytes, 0)?, u64_at(bytes, 8)?).ok()?;
        (node.chunks().end <= self.job.chunk_count()).then_some(node)
    }
}

/// Checks the envelope; returns the cursor, and the bytes of the nodes.
fn open(bytes: &[u8]) -> Result<(Cursor, &[u8])> {
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Err(Error::not_ours(
            "these are no partials of a fold (wrong first bytes); expected what headwater-reduce \
             wrote",
        ));
    }
    let Some((content, hash)) = bytes.split_last_chunk::<HASH_BYTES>() else {
        return Err(cut_off());
    };
    // Before the version, which may be what is damaged: every version ends with its digest.
    if blake3::hash(content) != *hash {
        return Err(damaged("it does not match its digest"));
    }
    let version = u32_at(content, 8).ok_or_else(cut_off)?;
    if version != VERSION {
        return Err(Error::version(format!(
            "partials of format version {version}; this build reads version {VERSION}: go on with \
             the version of headwater that wrote them, or start afresh"
        )));
    }
    let length = u64_at(content, 16).and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or_else(cut_off)?;
    let end = HEADER_BYTES.checked_add(length).filter(|&end| end <= content.len());
    let end = end.ok_or_else(|| damaged("what it says of its job reaches past its end"))?;
    if u32_at(content, 12) != Some(0) {
        return Err(damaged("reserved bytes are set"));
    }
    let cursor = Cursor::decode(&content[HEADER_BYTES..end]).map_err(|e| match e.kind() {
        ErrorKind::Version => e.context("what the partials say of their job"),
        _ => damaged("what it says of its job is none"),
    })?;
    if cursor.kind() != CursorKind::Reducer {
        return Err(damaged("what it says of its job is not of a fold"));
    }
    Ok((cursor, &content[end..]))
}

fn cut_off() -> Error {
    damaged("it is cut off")
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!(
        "the partials are damaged: {what}; use an earlier file, or start afresh"
    ))
}
