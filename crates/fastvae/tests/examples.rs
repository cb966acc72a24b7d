//! The programs in `examples/` run to their end.

#[path = "../examples/baselines.rs"]
mod baselines;
#[path = "../examples/first_model.rs"]
mod first_model;
#[path = "../examples/lists_for_all.rs"]
mod lists_for_all;
#[path = "../examples/resume.rs"]
mod resume;
#[path = "../examples/ways_to_ask.rs"]
mod ways_to_ask;

#[test]
fn every_example_runs() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    assert_eq!(std::fs::read_dir(folder).expect("the examples are there").count(), 5, "name each below");
    for run in [baselines::main, first_model::main, lists_for_all::main, resume::main, ways_to_ask::main] {
        run().expect("an example runs");
    }
}
