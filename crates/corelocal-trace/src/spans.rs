//! Where spans are shown, for formats in which the begins and ends of a track must match.
//!
//! A thread has a track. A task span that is in no other task span has a track, too, which the task spans in it share as long
//! as they nest; others of the tree get further tracks.
//!
//! A recording may have an end without its begin, which was overwritten, and a begin without its end, if that was lost or
//! did not come yet.
//!
//! # Invariants
//! 1. Of each track as many ends are written as begins, and the inner span ends first.
//!    A span whose end is missing ends at the next event of its thread that is not in it.
//! 2. A task span that outlives the one around it goes on in another track of the tree from then on.
//! 3. The memory in use is that of the open spans.

use std::collections::HashMap;

use corelocal::trace::format::Kind;

use crate::{Event, Recording, Site};

/// The track on which a span is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Track {
    /// The track of a thread.
    Thread(u32),
    /// The track of a tree of task spans, numbered from 0.
    Task(u64, u32),
}

/// A span that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open<'r> {
    pub(crate) id: u64,
    pub(crate) site: &'r Site,
    pub(crate) thread: u32,
}

/// A step of an export, in the order of writing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'r> {
    /// The inner span of the track ends.
    End(Track, Open<'r>),
    /// A span goes on there.
    GoOn(Track, Open<'r>),
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Spans<'r> {
    /// Ends may be missing.
    is_lossy: bool,
    threads: HashMap<u32, Vec<Open<'r>>>,
    /// By the first span of each tree its tracks: the open spans, the inner one last.
    trees: HashMap<u64, Vec<Vec<Open<'r>>>>,
    /// The tree of each open task span.
    tree_of: HashMap<u64, u64>,
}

impl<'r> Spans<'r> {
    /// Creates those of a recording's events, which must be given in their order.
    pub(crate) fn new(recording: &Recording) -> Spans<'r> {
        Spans { is_lossy: recording.lost() > 0, ..Spans::default() }
    }

    /// Notes in which span the thread of an event was before it. Returns the ends of the spans that the thread has left by
    /// then, if ends may be missing.
    pub(crate) fn settle(&mut self, event: &Event<'r>) -> Vec<Step<'r>> {
        let open = self.threads.get(&event.thread).filter(|_| self.is_lossy);
        let Some(open) = open else { return Vec::new() };
        let inner = match event.within {
            0 => 0,
            // A task, or a span whose begin is missing, says nothing of the others.
            within => {
                open.iter().rposition(|open| open.id == within).map_or(open.len(), |at| at + 1)
            }
        };
        self.end_of_thread(event.thread, inner)
    }

    /// Ends the spans of a thread from this one on.
    fn end_of_thread(&mut self, thread: u32, from: usize) -> Vec<Step<'r>> {
        let Some(open) = self.threads.get_mut(&thread) else { return Vec::new() };
        let ended = open.split_off(from.min(open.len()));
        if open.is_empty() {
            self.threads.remove(&thread);
        }
        for span in &ended {
            self.tree_of.remove(&span.id);
        }
        ended.into_iter().rev().map(|open| Step::End(Track::Thread(thread), open)).collect()
    }

    /// Notes the begin of a span. Returns its track, and that of its parent if this is another one, and is known.
    pub(crate) fn begin(&mut self, event: &Event<'r>) -> (Track, Option<Track>) {
        let Event { span, parent, site, thread, .. } = *event;
        let open = Open { id: span, site, thread };
        let of_parent = self.track_of(parent, thread);
        let tree = self.tree_of.get(&parent).copied();
        let track = match site.kind {
            Kind::TaskSpan => {
                let tree = tree.unwrap_or(span);
                self.tree_of.insert(span, tree);
                self.put(tree, open, parent)
            }
            _ => {
                if let Some(tree) = tree {
                    self.tree_of.insert(span, tree);
                }
                self.threads.entry(thread).or_default().push(open);
                Track::Thread(thread)
            }
        };
        (track, of_parent.filter(|of_parent| *of_parent != track))
    }

    /// Puts a span on a track of a tree: that of its parent if that is the inner one there, else an empty one.
    fn put(&mut self, tree: u64, open: Open<'r>, parent: u64) -> Track {
        let tracks = self.trees.entry(tree).or_default();
        let is_inner = |track: &Vec<Open<'r>>| track.last().is_some_and(|last| last.id == parent);
        let nested = tracks.iter().position(is_inner);
        let at = nested.or_else(|| tracks.iter().position(Vec::is_empty)).unwrap_or(tracks.len());
        if at == tracks.len() {
            tracks.push(Vec::new());
        }
        tracks[at].push(open);
        Track::Task(tree, at as u32)
    }

    /// Returns where an open span is shown: one of a task, or of this thread.
    fn track_of(&self, id: u64, thread: u32) -> Option<Track> {
        let is_it = |open: &Open<'_>| open.id == id;
        let of_task = self.tree_of.get(&id).and_then(|tree| {
            let at = self.trees.get(tree)?.iter().position(|track| track.iter().any(is_it))?;
            Some(Track::Task(*tree, at as u32))
        });
        let is_here = || self.threads.get(&thread).is_some_and(|open| open.iter().any(is_it));
        of_task.or_else(|| is_here().then_some(Track::Thread(thread)))
    }

    /// Notes the end of a span. Returns what is to be written; nothing if its begin is missing.
    pub(crate) fn end(&mut self, event: &Event<'r>) -> Vec<Step<'r>> {
        let Event { span, thread, site, .. } = *event;
        if site.kind != Kind::TaskSpan {
            let open = self.threads.get(&thread);
            let at = open.and_then(|open| open.iter().rposition(|open| open.id == span));
            return at.map_or(Vec::new(), |at| self.end_of_thread(thread, at));
        }
        let Some(tree) = self.tree_of.remove(&span) else { return Vec::new() };
        let Some(tracks) = self.trees.get_mut(&tree) else { return Vec::new() };
        let found = tracks.iter().enumerate().find_map(|(nth, track)| {
            track.iter().position(|open| open.id == span).map(|at| (nth, at))
        });
        let Some((nth, at)) = found else { return Vec::new() };
        let ended = tracks[nth].split_off(at);
        let mut steps: Vec<Step<'r>> = ended
            .iter()
            .rev()
            .map(|open| Step::End(Track::Task(tree, nth as u32), *open))
            .collect();
        // Those in it go on, the outer one first. (2)
        let mut parent = 0;
        for open in &ended[1..] {
            let track = self.put(tree, *open, parent);
            steps.push(Step::GoOn(track, *open));
            parent = open.id;
        }
        if self.trees.get(&tree).is_some_and(|tracks| tracks.iter().all(Vec::is_empty)) {
            self.trees.remove(&tree);
        }
        steps
    }

    /// Returns the spans that are open, the outer ones first.
    pub(crate) fn open(&self) -> Vec<(Track, Open<'r>)> {
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_unstable_by_key(|(thread, _)| **thread);
        let of_threads = threads
            .into_iter()
            .flat_map(|(thread, open)| open.iter().map(|open| (Track::Thread(*thread), *open)));
        let mut trees: Vec<_> = self.trees.iter().collect();
        trees.sort_unstable_by_key(|(tree, _)| **tree);
        let of_tasks = trees.into_iter().flat_map(|(tree, tracks)| {
            let numbered = tracks.iter().zip(0..);
            numbered.flat_map(move |(track, nth)| {
                track.iter().map(move |open| (Track::Task(*tree, nth), *open))
            })
        });
        of_threads.chain(of_tasks).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(site: &Site, id: u64) -> Open<'_> {
        Open { id, site, thread: 1 }
    }

    #[test]
    fn tracks_of_a_tree() {
        let fields = Vec::new();
        let site = &Site {
            name: "task".into(),
            kind: Kind::TaskSpan,
            level: None,
            is_on: true,
            every: 1,
            lost: 0,
            fields,
        };
        let mut spans = Spans::default();
        let mut put = |id, parent| spans.put(1, open(site, id), parent);
        // A root, a nested span, one beside it, and one in that.
        let tracks = [put(1, 0), put(2, 1), put(3, 1), put(4, 3)];
        assert_eq!(tracks, [0, 0, 1, 1].map(|nth| Track::Task(1, nth)));
        assert_eq!(spans.open().len(), 4);
    }
}
