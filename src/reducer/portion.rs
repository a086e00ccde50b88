//! Portions: nodes of a job with their partials, as the bytes that ranks send and checkpoints hold.

use twox_hash::XxHash3_128;

use crate::bytes::{Digest, Envelope, u32_at, u64_at};
use crate::error::{Context, Error, Result};
use crate::fold::statistic::Incoming;
use crate::fold::{Node, Statistic};
use crate::plan::Plan;

use super::job::Job;
use super::message::Report;
use super::sourced::{Arriving, Sourced};
use super::versions::{self, FileVersion};

const ENVELOPE: Envelope = Envelope {
    name: "portion",
    magic: *b"HWFOLD\0\0",
    version: 3,
    payload_max: usize::MAX,
    remedy: "use an earlier file, or fold its rows again",
};
/// The number of nodes, and the length of each partial.
const COUNTS_BYTES: usize = 16;
/// The level and index of a node, and the digest of its rows.
const NODE_BYTES: usize = 48;

/// A node with its partial and the digest of its rows.
pub type NodePartial<S> = (Node, Sourced<<S as Statistic>::Partial>);

/// A node, its partial still in the bytes of a portion.
pub type ArrivedNode<'a, S> = (Node, Arriving<<S as Statistic>::Incoming<'a>>);

/// The content of a portion, whose partials are still in its bytes.
pub struct Arrived<'a, S: Statistic> {
    /// The versions of the files that have the rows of the nodes.
    pub versions: Vec<FileVersion>,
    /// The nodes, in the order of their chunks.
    pub nodes: Vec<ArrivedNode<'a, S>>,
    /// The bytes of the nodes: they depend on the rows alone, unlike the versions.
    bytes: &'a [u8],
}

impl<S: Statistic> Arrived<'_, S> {
    /// Returns a digest of the nodes, to compare what two ranks folded.
    pub(super) fn nodes_digest(&self) -> u128 {
        XxHash3_128::oneshot(self.bytes)
    }
}

/// Writes and reads portions of one job.
pub struct Portion<'a, S> {
    job: &'a Job,
    statistic: &'a S,
}

impl<'a, S: Statistic> Portion<'a, S> {
    /// Returns the writer and reader of the portions of `job`, which folds `statistic`.
    pub fn of(job: &'a Job, statistic: &'a S) -> Self {
        Self { job, statistic }
    }

    /// Encodes a portion of these nodes, which are in the order of their chunks; `versions` are those of
    /// the files of their rows, in order.
    ///
    /// # Errors
    /// `LimitExceeded` when there is no memory.
    pub fn encode<'p>(
        &self,
        nodes: impl Iterator<Item = (Node, &'p Sourced<S::Partial>)>,
        versions: &[FileVersion],
    ) -> Result<Vec<u8>>
    where
        S::Partial: 'p,
    {
        let nodes: Vec<(Node, &Sourced<S::Partial>)> = nodes.collect();
        let partial_bytes = self.partial_bytes(nodes.len());
        let plan = self.job.plan().encode()?;
        // Reserves the trailer of a report, because a portion is too large to copy for it.
        let length = plan.len()
            + COUNTS_BYTES
            + versions::length(versions)
            + nodes.len() * (NODE_BYTES + partial_bytes);
        let mut bytes = ENVELOPE
            .begin(0, length + Report::TRAILER_BYTES)
            .context(|| format!("{} partials of {partial_bytes} bytes each", nodes.len()))?;
        bytes.extend(plan);
        bytes.extend((nodes.len() as u64).to_le_bytes());
        bytes.extend((partial_bytes as u64).to_le_bytes());
        versions::write(versions, &mut bytes);
        for (node, Sourced { partial, rows }) in nodes {
            bytes.extend(node.level().to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(node.index().to_le_bytes());
            bytes.extend(rows.0);
            self.statistic.write(partial, &mut bytes);
        }
        Ok(Envelope::seal(bytes))
    }

    /// Decodes a portion of this job.
    ///
    /// # Errors
    /// As [`Portion::read`], and `LimitExceeded` when there is no memory.
    pub fn decode(&self, bytes: &[u8]) -> Result<(Vec<FileVersion>, Vec<NodePartial<S>>)> {
        let own = |(node, arrived): ArrivedNode<'_, S>| {
            Ok((node, arrived.join(Vec::new(), &mut Vec::new())?))
        };
        let Arrived { versions, nodes, .. } = self.read(bytes)?;
        Ok((versions, nodes.into_iter().map(own).collect::<Result<_>>()?))
    }

    /// Checks a portion of this job, and returns its content without a copy of the partials.
    ///
    /// # Errors
    /// `NotOurs`, `Version` or `Corrupt` when the bytes are not a valid portion; `PlanMismatch`, with
    /// each setting that differs, when the portion is of another job.
    pub fn read<'b>(&self, bytes: &'b [u8]) -> Result<Arrived<'b, S>> {
        self.read_payload(ENVELOPE.open(bytes)?)
    }

    /// As [`Portion::read`], for a portion of a report, whose digest shows that it is undamaged.
    pub(super) fn read_undamaged<'b>(&self, bytes: &'b [u8]) -> Result<Arrived<'b, S>> {
        self.read_payload(ENVELOPE.open_undamaged(bytes)?)
    }

    fn read_payload<'b>(&self, (kind, payload): (u32, &'b [u8])) -> Result<Arrived<'b, S>> {
        if kind != 0 {
            return Err(damaged(&format!("expected kind 0, found {kind}")));
        }
        let (plan, rest) = Plan::decode_first(payload).map_err(|what| damaged(&what))?;
        self.job.plan().compare(&plan).context(|| "the portion is of another job")?;
        let count = |at| u64_at(rest, at).and_then(|count| usize::try_from(count).ok());
        let (Some(nodes), Some(partial_bytes)) = (count(0), count(8)) else {
            return Err(damaged(
                "expected the counts after the plan, found the end of the portion",
            ));
        };
        let (versions, mut rest) = versions::read(&rest[COUNTS_BYTES..]).ok_or_else(|| {
            damaged("expected the versions of the files in order, found other bytes")
        })?;
        let expected = self.partial_bytes(nodes);
        if partial_bytes != expected {
            return Err(damaged(&format!(
                "expected partials of {expected} bytes, found {partial_bytes}"
            )));
        }
        let expected = NODE_BYTES.checked_add(partial_bytes).and_then(|one| one.checked_mul(nodes));
        if expected != Some(rest.len()) {
            return Err(damaged(&format!(
                "expected {nodes} nodes of {partial_bytes} bytes each, found {} bytes of nodes",
                rest.len()
            )));
        }
        let bytes = rest;
        let mut arrived = Vec::with_capacity(nodes);
        let mut covered = 0;
        for _ in 0..nodes {
            let (one, after) = rest.split_at(NODE_BYTES + partial_bytes);
            rest = after;
            let node = self.node(one).filter(|node| node.chunks().start >= covered);
            let node = node.ok_or_else(|| {
                damaged("expected nodes of the job in the order of their chunks, found others")
            })?;
            covered = node.chunks().end;
            let (head, partial) = one.split_at(NODE_BYTES);
            let partial = self.statistic.read(partial)?;
            let rows =
                self.job.rows_of(covered - 1).end - self.job.rows_of(node.chunks().start).start;
            if self.job.knows_rows() && !self.statistic.fits_rows(&partial, rows) {
                return Err(damaged(&format!("expected the sum of {node} to have {rows} rows")));
            }
            let rows = Digest(*head.last_chunk().ok_or_else(|| damaged("a node is cut off"))?);
            arrived.push((node, Arriving(Sourced { partial, rows })));
        }
        Ok(Arrived { versions, nodes: arrived, bytes })
    }

    /// The length of each partial; 0 for no nodes, so that an empty portion has one form only.
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

fn damaged(what: &str) -> Error {
    ENVELOPE.damaged(what.to_owned())
}
