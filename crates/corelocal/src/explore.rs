//! Runs a model of the library's orderings in every order that the memory model allows.

/// Explores all orders with at most `preemptions` changes of thread that no thread asked for. The environment's
/// `LOOM_MAX_PREEMPTIONS` lowers the number.
pub(crate) fn within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    let most = builder.preemption_bound.unwrap_or(preemptions);
    builder.preemption_bound = Some(most.min(preemptions));
    builder.check(model);
}
