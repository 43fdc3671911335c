//! The random simulator: one schedule, in which each step is drawn from those that are possible.

use super::{Costs, Kind, Model, Step, number_of_actors};

/// A model in motion.
///
/// The same model and seed give the same steps, in every build and on every machine.
pub struct Simulation<'m, M: Model> {
    model: &'m M,
    /// The state now.
    pub state: M::State,
    /// The costs of the steps so far.
    pub costs: Costs,
    actors: u8,
    numbers: Numbers,
    possible: Vec<Step>,
}

/// The result of a call of [`Simulation::advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// This step was taken.
    Stepped(Step),
    /// No step is possible any more.
    Ended,
    /// The step broke a rule.
    Failed(Step, String),
}

impl<'m, M: Model> Simulation<'m, M> {
    /// Returns the model in its initial state.
    pub fn new(model: &'m M, seed: u64) -> Self {
        Simulation {
            model,
            state: model.initial(),
            costs: Costs::default(),
            actors: number_of_actors(model),
            numbers: Numbers(seed),
            possible: Vec::new(),
        }
    }

    /// Takes a step of an actor drawn at random.
    pub fn advance(&mut self) -> Advance {
        let first = self.numbers.below(self.actors.into()) as u8;
        self.possible.clear();
        for nth in 0..self.actors {
            let actor = ((u16::from(first) + u16::from(nth)) % u16::from(self.actors)) as u8;
            self.model.steps_of(&self.state, actor, &mut self.possible);
            if !self.possible.is_empty() {
                break;
            }
        }
        if self.possible.is_empty() {
            return Advance::Ended;
        }
        let step = self.possible[self.numbers.below(self.possible.len())];
        let taken = self.model.take(&mut self.state, step, &mut self.costs);
        match taken.and_then(|()| self.model.invariant(&self.state)) {
            Ok(()) => Advance::Stepped(step),
            Err(message) => Advance::Failed(step, message),
        }
    }

    /// Goes back to the initial state. The costs and the numbers go on.
    pub fn restart(&mut self) {
        self.state = self.model.initial();
    }
}

/// Takes steps of this actor until it has no step that it must take.
///
/// # Errors
/// The rule that a step broke.
pub fn run_to_rest<M: Model>(model: &M, state: &mut M::State, actor: u8) -> Result<(), String> {
    let mut possible = Vec::new();
    loop {
        possible.clear();
        model.steps_of(state, actor, &mut possible);
        let Some(&step) = possible.iter().find(|step| step.kind == Kind::Must) else {
            return Ok(());
        };
        model.take(state, step, &mut Costs::default())?;
        model.invariant(state)?;
    }
}

/// Pseudo-random numbers: SplitMix64, which is a few lines, and the same for ever.
///
/// Source: Guy Steele, Doug Lea, Christine Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns the next number, of 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }
}
