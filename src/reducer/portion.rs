//! Portions: nodes of a job with their partials, as the bytes that ranks send and checkpoints hold.

use crate::bytes::{Envelope, u32_at, u64_at};
use crate::error::{Context, Error, Result};
use crate::fold::statistic::Incoming;
use crate::fold::{Node, Statistic};
use crate::plan::Plan;

use super::job::Job;
use super::message::Report;

const ENVELOPE: Envelope = Envelope {
    name: "portion",
    magic: *b"HWFOLD\0\0",
    version: 2,
    payload_max: usize::MAX,
    remedy: "use an earlier file, or fold its rows again",
};
/// The number of nodes, and the length of each partial.
const COUNTS_BYTES: usize = 16;
const NODE_BYTES: usize = 16;

/// A node and its partial.
pub type NodePartial<S> = (Node, <S as Statistic>::Partial);

/// A node and its partial, still in the bytes of a portion.
pub type ArrivedNode<'a, S> = (Node, <S as Statistic>::Incoming<'a>);

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

    /// Encodes a portion of these nodes, which are in the order of their chunks.
    ///
    /// # Errors
    /// `LimitExceeded` when there is no memory.
    pub fn encode<'p>(&self, nodes: impl Iterator<Item = (Node, &'p S::Partial)>) -> Result<Vec<u8>>
    where
        S::Partial: 'p,
    {
        let nodes: Vec<(Node, &S::Partial)> = nodes.collect();
        let partial_bytes = self.partial_bytes(nodes.len());
        let plan = self.job.plan().encode()?;
        // Reserves the trailer of a report, because a portion is too large to copy for it.
        let length = plan.len() + COUNTS_BYTES + nodes.len() * (NODE_BYTES + partial_bytes);
        let mut bytes = ENVELOPE
            .begin(0, length + Report::TRAILER_BYTES)
            .context(|| format!("{} partials of {partial_bytes} bytes each", nodes.len()))?;
        bytes.extend(plan);
        bytes.extend((nodes.len() as u64).to_le_bytes());
        bytes.extend((partial_bytes as u64).to_le_bytes());
        for (node, partial) in nodes {
            bytes.extend(node.level().to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(node.index().to_le_bytes());
            self.statistic.write(partial, &mut bytes);
        }
        Ok(Envelope::seal(bytes))
    }

    /// Decodes the nodes of a portion of this job.
    ///
    /// # Errors
    /// As [`Portion::read`], and `LimitExceeded` when there is no memory.
    pub fn decode(&self, bytes: &[u8]) -> Result<Vec<NodePartial<S>>> {
        let own = |(node, arrived): ArrivedNode<'_, S>| {
            Ok((node, arrived.join(Vec::new(), &mut Vec::new())?))
        };
        self.read(bytes)?.into_iter().map(own).collect()
    }

    /// Checks a portion of this job, and returns its nodes without a copy of their partials.
    ///
    /// # Errors
    /// `NotOurs`, `Version` or `Corrupt` when the bytes are not a valid portion; `PlanMismatch`, with
    /// each setting that differs, when the portion is of another job.
    pub fn read<'b>(&self, bytes: &'b [u8]) -> Result<Vec<ArrivedNode<'b, S>>> {
        let (kind, payload) = ENVELOPE.open(bytes)?;
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
        let mut rest = &rest[COUNTS_BYTES..];
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
            let partial = self.statistic.read(&one[NODE_BYTES..])?;
            let rows =
                self.job.rows_of(covered - 1).end - self.job.rows_of(node.chunks().start).start;
            if !self.statistic.fits_rows(&partial, rows) {
                return Err(damaged(&format!("expected the sum of {node} to have {rows} rows")));
            }
            arrived.push((node, partial));
        }
        Ok(arrived)
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
