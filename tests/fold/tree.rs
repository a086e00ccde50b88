//! P1 of the tree: whatever comes when, the whole is the one that plain recursion folds.

use std::cell::RefCell;
use std::ops::Range;

use headwater::fold::statistic::Incoming;
use headwater::fold::tree::Inserted;
use headwater::fold::{Node, Partial, Tree};
use headwater::random::{Purpose, Stream};
use headwater::{Error, ErrorKind, Result};
use proptest::prelude::*;

use crate::twin::fold;

/// A partial that tells how it came to be.
#[derive(Clone, Debug, PartialEq)]
struct Story(String);

impl Partial for Story {
    fn merge(&mut self, right: &Self) {
        self.0 = format!("({} {})", self.0, right.0);
    }

    fn same_bits(&self, other: &Self) -> bool {
        self == other
    }
}

/// The story of some chunks as plain recursion tells it.
fn story(chunks: Range<u64>) -> Story {
    let count = (chunks.end - chunks.start) as usize;
    Story(fold(chunks.start as usize, count, &|chunk| chunk.to_string(), &|left, right| {
        format!("({left} {right})")
    }))
}

fn insert(tree: &mut Tree<Story>, node: Node) -> Inserted {
    tree.insert(node, story(node.chunks())).unwrap()
}

/// Every node that a tree over `count` chunks has.
fn all_nodes(count: u64) -> Vec<Node> {
    let of_level = |level| (0..count >> level).map(move |index| Node::new(level, index).unwrap());
    (0..=count.ilog2()).flat_map(of_level).collect()
}

proptest! {
    #[test]
    fn p1_any_order_of_chunks_folds_to_the_same_whole(count in 1_u64..200, seed: u64) {
        let mut left: Vec<u64> = (0..count).collect();
        let mut random = Stream::new(seed, Purpose::Demo, [2, 0, 0]);
        let mut tree = Tree::new(count);
        while !left.is_empty() {
            let chunk = left.swap_remove(random.below(left.len() as u64) as usize);
            prop_assert_eq!(insert(&mut tree, Node::leaf(chunk).unwrap()), Inserted::New);
        }
        prop_assert_eq!(tree.finish().unwrap(), Some(story(0..count)));
    }

    /// Nodes of every level, some of them twice, some inside others, until all is there. What is
    /// covered is compared with a list of flags.
    #[test]
    fn p1_any_mix_of_levels_and_duplicates_folds_to_the_same_whole(
        count in 1_u64..200, seed: u64,
    ) {
        let nodes = all_nodes(count);
        let mut random = Stream::new(seed, Purpose::Demo, [3, 0, 0]);
        let mut tree = Tree::new(count);
        let mut flags = vec![false; count as usize];
        while flags.contains(&false) {
            let node = nodes[random.below(nodes.len() as u64) as usize];
            let chunks = node.chunks();
            let own = &mut flags[chunks.start as usize..chunks.end as usize];
            let known = tree.nodes().any(|(held, _)| held == node);
            let expected = match own.contains(&false) {
                true => Inserted::New,
                false if known => Inserted::Same,
                false => Inserted::Covered,
            };
            own.fill(true);
            prop_assert_eq!(insert(&mut tree, node), expected);
            prop_assert_eq!(tree.covered(), runs(&flags, true));
            prop_assert_eq!(tree.missing(), runs(&flags, false));
            prop_assert_eq!(tree.covered_count(), flags.iter().filter(|flag| **flag).count() as u64);
            prop_assert!((0..count).all(|chunk| tree.covers(chunk) == flags[chunk as usize]));
        }
        prop_assert_eq!(tree.finish().unwrap(), Some(story(0..count)));
    }

    /// What a resumed run does: the complement, in the largest nodes that it has.
    #[test]
    fn p4_elastic_the_complement_of_what_is_there_completes_it(
        count in 1_u64..200, seed: u64, share in 0_u64..100,
    ) {
        let mut random = Stream::new(seed, Purpose::Demo, [4, 0, 0]);
        let mut tree = Tree::new(count);
        for chunk in 0..count {
            if random.below(100) < share {
                insert(&mut tree, Node::leaf(chunk).unwrap());
            }
        }
        for node in tree.missing().into_iter().flat_map(Node::within) {
            prop_assert_eq!(insert(&mut tree, node), Inserted::New);
        }
        prop_assert_eq!(tree.finish().unwrap(), Some(story(0..count)));
    }

    #[test]
    fn p5_exactly_once_nodes_within_a_range_are_its_chunks(start in 0_u64..500, length in 0_u64..500) {
        let nodes: Vec<Node> = Node::within(start..start + length).collect();
        let chunks: Vec<u64> = nodes.iter().flat_map(Node::chunks).collect();
        prop_assert_eq!(chunks, (start..start + length).collect::<Vec<_>>());
        // No two neighbours make a greater node.
        for pair in nodes.windows(2) {
            let same = pair[0].level() == pair[1].level();
            prop_assert!(!same || pair[0].index() % 2 == 1);
        }
    }
}

/// The ranges of flags that are `wanted`.
fn runs(flags: &[bool], wanted: bool) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (at, _) in flags.iter().enumerate().filter(|(_, flag)| **flag == wanted) {
        let at = at as u64;
        match runs.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end += 1,
            None => runs.push(at..at + 1),
        }
    }
    runs
}

/// The tree of `FORMAT.md`, drawn.
#[test]
fn p1_golden_whole_of_eleven_chunks() {
    let expected = "((((0 1) (2 3)) ((4 5) (6 7))) ((8 9) 10))";
    assert_eq!(story(0..11).0, expected);
    let mut tree = Tree::new(11);
    (0..11)
        .rev()
        .for_each(|chunk| assert_eq!(insert(&mut tree, Node::leaf(chunk).unwrap()), Inserted::New));
    assert_eq!(tree.finish().unwrap().unwrap().0, expected);
}

#[test]
fn every_count_of_chunks_holds_one_node_for_each_bit() {
    for count in 1_u64..=200 {
        let mut tree = Tree::new(count);
        for chunk in 0..count {
            insert(&mut tree, Node::leaf(chunk).unwrap());
            assert_eq!(tree.nodes().count(), (chunk + 1).count_ones() as usize);
        }
        assert_eq!(tree.finish().unwrap(), Some(story(0..count)));
    }
}

#[test]
fn p6_a_node_with_other_bits_is_refused_by_name_and_changes_nothing() {
    let mut tree = Tree::new(13);
    insert(&mut tree, Node::new(1, 2).unwrap());
    insert(&mut tree, Node::leaf(12).unwrap());
    let before = tree.clone();
    let error = tree.insert(Node::new(1, 2).unwrap(), Story("other".into())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let words = "the sum of chunks 4 to 5 arrived twice, and the two differ; let every rank read the same \
                 files and run the same build of headwater";
    assert_eq!(error.to_string(), words);
    let error = tree.insert(Node::leaf(12).unwrap(), Story("other".into())).unwrap_err();
    assert!(error.to_string().starts_with("the sum of chunk 12 arrived twice"), "{error}");
    assert!(tree.nodes().eq(before.nodes()));
}

/// A story that comes when there may be no memory for it.
struct Coming(Option<Story>);

impl Incoming<Story> for Coming {
    fn has_bits_of(&self, present: &Story) -> bool {
        self.0.as_ref() == Some(present)
    }

    fn join(self, siblings: Vec<(Node, Story)>, spent: &mut Vec<Story>) -> Result<Story> {
        assert!(self.0.is_some() || siblings.is_empty());
        self.0.ok_or_else(|| Error::limit("no memory"))?.join(siblings, spent)
    }
}

fn coming(node: Node) -> (Node, Coming) {
    (node, Coming(Some(story(node.chunks()))))
}

proptest! {
    #[test]
    fn nodes_that_come_together_are_taken_in_as_one_by_one(
        count in 1_u64..40,
        there in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        come in any::<u64>(),
        as_leaves: bool,
    ) {
        let all = all_nodes(count);
        let mut one_by_one = Tree::new(count);
        for pick in there {
            insert(&mut one_by_one, *pick.get(&all));
        }
        let mut together = one_by_one.clone();
        let flags: Vec<bool> = (0..count).map(|chunk| come >> chunk & 1 == 1).collect();
        let ranges = runs(&flags, true).into_iter();
        let nodes: Vec<Node> = if as_leaves {
            ranges.flatten().map(|chunk| Node::leaf(chunk).unwrap()).collect()
        } else {
            ranges.flat_map(Node::within).collect()
        };
        let new = nodes.iter().filter(|node| insert(&mut one_by_one, **node) == Inserted::New);
        let new = new.count();
        prop_assert_eq!(together.insert_all(nodes.into_iter().map(coming).collect()).unwrap(), new);
        prop_assert!(together.nodes().eq(one_by_one.nodes()));
    }
}

/// A story that records how many siblings it is merged with.
struct Counted<'a>(Story, &'a RefCell<Vec<(String, usize)>>);

impl Incoming<Story> for Counted<'_> {
    fn has_bits_of(&self, present: &Story) -> bool {
        self.0 == *present
    }

    fn join(self, siblings: Vec<(Node, Story)>, spent: &mut Vec<Story>) -> Result<Story> {
        self.1.borrow_mut().push((self.0.0.clone(), siblings.len()));
        self.0.join(siblings, spent)
    }
}

proptest! {
    /// Only a node without a sibling needs memory of its own, and it takes that before the tree changes.
    #[test]
    fn nodes_without_a_sibling_are_kept_before_others_are_merged(
        count in 1_u64..40,
        there in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        come in prop::collection::vec(any::<prop::sample::Index>(), 2..12),
    ) {
        let all = all_nodes(count);
        let mut one_by_one = Tree::new(count);
        for pick in there {
            insert(&mut one_by_one, *pick.get(&all));
        }
        let mut together = one_by_one.clone();
        let (alone, joined) = (RefCell::new(vec![]), RefCell::new(vec![]));
        let nodes: Vec<Node> = come.iter().map(|pick| *pick.get(&all)).collect();
        for &node in &nodes {
            one_by_one.insert(node, Counted(story(node.chunks()), &alone)).unwrap();
        }
        let incoming = nodes.iter().map(|&node| (node, Counted(story(node.chunks()), &joined)));
        together.insert_all(incoming.collect()).unwrap();
        prop_assert!(together.nodes().eq(one_by_one.nodes()));
        let (mut alone, joined) = (alone.into_inner(), joined.into_inner());
        let kept = joined.iter().take_while(|(_, siblings)| *siblings == 0).count();
        prop_assert!(joined[kept..].iter().all(|(_, siblings)| *siblings > 0), "{:?}", joined);
        // Apart from that they come in their order.
        alone.sort_by_key(|(_, siblings)| *siblings > 0);
        prop_assert_eq!(joined, alone);
    }
}

#[test]
fn p6_insert_all_takes_all_nodes_or_none() {
    let node = |level, index| Node::new(level, index).unwrap();
    let mut tree = Tree::new(16);
    for there in [node(0, 0), node(0, 5), node(1, 4), node(0, 12)] {
        insert(&mut tree, there);
    }
    let before = tree.clone();
    let other = |node| (node, Coming(Some(Story("other".into()))));
    let no_memory = |node| (node, Coming(None));
    for (last, kind) in [
        // Bits that differ, of one that would have been merged by then, too.
        (vec![other(node(1, 4))], ErrorKind::Corrupt),
        (vec![coming(node(0, 4)), other(node(0, 5))], ErrorKind::Corrupt),
        (vec![no_memory(node(0, 15))], ErrorKind::LimitExceeded),
        (vec![coming(node(3, 2))], ErrorKind::InvalidArgument),
    ] {
        // One that would take the place of a smaller one, and one that would be merged with
        // another.
        let mut nodes = vec![coming(node(1, 0))];
        nodes.extend(last);
        nodes.push(coming(node(0, 13)));
        assert_eq!(tree.insert_all(nodes).unwrap_err().kind(), kind);
        assert!(tree.nodes().eq(before.nodes()), "{kind:?}");
    }
    let nodes = vec![coming(node(1, 0)), coming(node(0, 4)), coming(node(0, 13))];
    assert_eq!(tree.insert_all(nodes).unwrap(), 3);
    let held: Vec<Node> = tree.nodes().map(|(node, _)| node).collect();
    assert_eq!(held, [node(1, 0), node(1, 2), node(1, 4), node(1, 6)]);
}

#[test]
fn nodes_past_the_end_and_incomplete_folds_are_refused() {
    let mut tree = Tree::new(13);
    let error = tree.insert(Node::new(2, 3).unwrap(), story(12..16)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected a node within the 13 chunks of the fold, found the node of chunks 12 to 15"
    );
    insert(&mut tree, Node::new(3, 0).unwrap());
    assert_eq!(tree.chunk_count(), 13);
    let error = tree.clone().finish().unwrap_err();
    assert_eq!(error.to_string(), "the fold is not complete: chunks 8 to 12 are missing");
    insert(&mut tree, Node::new(2, 2).unwrap());
    let error = tree.finish().unwrap_err();
    assert_eq!(error.to_string(), "the fold is not complete: chunk 12 is missing");
    assert_eq!(Tree::<Story>::new(0).finish().unwrap(), None);
}
