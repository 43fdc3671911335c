//! The rounds with contestants that keep a diary instead of being measured.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::bail;
use corelocal_support::measure::engine::Plan;
use corelocal_support::schema::{Better, Machine, Row};

use super::*;

/// Writes its name down in each round and takes as long as it is told to; fails on request.
struct Scribe {
    name: usize,
    value: f64,
    fails_in_round: Option<usize>,
    rounds: usize,
    takes: Duration,
    diary: Rc<RefCell<Vec<usize>>>,
}

impl Body for Scribe {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.rounds
    }

    fn prepare(&mut self, _x: Option<f64>, _plan: &Plan) -> anyhow::Result<()> {
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        self.rounds += 1;
        if self.fails_in_round == Some(self.rounds) {
            bail!("the ink ran out");
        }
        self.diary.borrow_mut().push(self.name);
        std::thread::sleep(self.takes);
        Ok(Sample { value: self.value, extra: vec![("twice", 2.0 * self.value)] })
    }
}

struct Diary;

impl super::super::Table for Diary {
    fn id(&self) -> &'static str {
        "diary"
    }
    fn title(&self) -> &'static str {
        "Diaries"
    }
    fn run(&self, _cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        bail!("not run here")
    }
}

const PLAN: Plan = Plan { rounds: 6, ..Plan::QUICK };

fn scribes(fails_in_round: Option<usize>) -> (Contest<Scribe>, Rc<RefCell<Vec<usize>>>) {
    let diary = Rc::new(RefCell::new(Vec::new()));
    let scribe = |name, value, fails_in_round| Scribe {
        name,
        value,
        fails_in_round,
        rounds: 0,
        takes: Duration::ZERO,
        diary: diary.clone(),
    };
    let contest = Contest::new(&Diary, "")
        .baseline("slow")
        .row(Row::new("slow", "slow"), scribe(0, 8.0, None))
        .row(Row::ours("fast", "fast"), scribe(1, 2.0, None))
        .row(Row::new("third", "third"), scribe(2, 4.0, fails_in_round))
        .unavailable(Row::new("absent", "absent"), "not made for this cpu");
    (contest, diary)
}

#[test]
fn everybody_is_first_and_everybody_alternates() {
    let (contest, diary) = scribes(None);
    let machine = Machine::default();
    contest.measure(&Context::new(PLAN, &machine));
    let diary = diary.borrow();
    let rounds: Vec<&[usize]> = diary.chunks(3).collect();
    assert_eq!(rounds.len(), 1 + PLAN.rounds, "one warm-up round and six that count");
    for round in &rounds {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2], "everybody once per round: {round:?}");
    }
    for name in 0..3 {
        assert!(rounds[1..].iter().any(|round| round[0] == name), "{name} never ran first");
    }
}

#[test]
fn figures_ratios_and_reasons() {
    let (contest, _) = scribes(None);
    let machine = Machine { tsc_mhz: Some(2500.0), ..Machine::default() };
    let table = contest.cycles().measure(&Context::new(PLAN, &machine));
    let fast = &table.rows[1].points[0];
    assert_eq!((fast.stat.median, fast.stat.n, fast.ratio), (2.0, 6, Some(4.0)));
    assert_eq!((fast.extra["cycles"].median, fast.extra["twice"].median), (5.0, 4.0));
    assert_eq!(table.rows[0].points[0].ratio, Some(1.0));
    let absent = &table.rows[3];
    assert!(absent.points.is_empty());
    assert_eq!(absent.unavailable.as_deref(), Some("not made for this cpu"));
}

#[test]
fn a_failing_contestant_leaves_the_others_alone() {
    let (contest, _) = scribes(Some(3));
    let machine = Machine::default();
    let table = contest.measure(&Context::new(PLAN, &machine));
    assert_eq!(table.rows[2].unavailable.as_deref(), Some("the ink ran out"));
    assert!(table.rows[2].points.is_empty());
    assert_eq!(table.rows[1].points[0].stat.n, 6);
}

#[test]
fn a_gap_on_the_x_axis_is_explained() {
    // Seven rounds at x = 1 including the warm-up, so that the failure falls on x = 2.
    let (contest, _) = scribes(Some(9));
    let machine = Machine::default();
    let contest = contest.over("threads", &[1, 2]).unit("s", Better::Higher);
    let table = contest.measure(&Context::new(PLAN, &machine));
    let xs = |row: usize| table.rows[row].points.iter().map(|p| p.x).collect::<Vec<_>>();
    assert_eq!(xs(0), [Some(1.0), Some(2.0)]);
    assert_eq!(xs(2), [Some(1.0)]);
    assert_eq!(table.notes, ["third, threads 2: the ink ran out"]);
    assert_eq!(table.rows[1].points[1].ratio, Some(0.25));
}

#[test]
fn cpu_time_shows_only_where_it_differs() {
    let sample = |cpu| Sample { value: 100.0, extra: vec![(CPU_NS, cpu)] };
    let value = Stat::of(&[100.0]).unwrap();
    assert!(extras(&[sample(97.0)], &value).is_empty());
    assert_eq!(extras(&[sample(40.0)], &value)[CPU_NS].median, 40.0);
}

/// No round begins after the end of all tables' time: of four contestants, at most as many rounds as fit before.
#[test]
fn nothing_begins_after_the_end() {
    for (time, most) in [(0, 0), (30, 4)] {
        let (mut contest, diary) = scribes(None);
        let each = Duration::from_millis(10);
        contest.bodies.iter_mut().flatten().for_each(|body| body.takes = each);
        let end = Some(Instant::now() + Duration::from_millis(time));
        let plan = Plan { rounds: 101, end, ..PLAN };
        let machine = Machine::default();
        contest.over("threads", &[1, 2]).measure(&Context::new(plan, &machine));
        assert!(plan.is_over() && diary.borrow().len() <= most, "{diary:?}");
    }
}
