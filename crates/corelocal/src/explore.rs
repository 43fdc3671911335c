//! Runs a model of the library's orderings in every order that the memory model allows.

/// Explores all orders with at most `preemptions` involuntary changes of thread, or as many as the environment's
/// `LOOM_MAX_PREEMPTIONS` says.
pub(crate) fn within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}
