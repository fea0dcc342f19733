//! A small world around a realm: proxies with processes, players, links that delay and break, pods that restart, leaders
//! that change. The truth is the players' and the processes', never the realm's.
//!
//! The property: a server that is removed after its seal had nobody on it or on the way to it, and no process that could
//! send somebody there. The controls run the same world with one guard left out and must lose somebody.

mod agents;
mod world;

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use world::{Guard, Op, PROXIES, World};

fn op() -> impl Strategy<Value = Op> {
    let proxy = 0..PROXIES;
    let server = 0..2_usize;
    prop_oneof![
        5 => (proxy.clone(), server.clone()).prop_map(|(p, s)| Op::Connect(p, s)),
        5 => (proxy.clone(), server.clone()).prop_map(|(p, s)| Op::Arrive(p, s)),
        9 => (proxy.clone(), server.clone()).prop_map(|(p, s)| Op::Leave(p, s)),
        6 => (proxy.clone(), 1..4_usize).prop_map(|(p, n)| Op::Pump(p, n)),
        8 => (proxy.clone(), 1..4_usize).prop_map(|(p, n)| Op::Deliver(p, n)),
        8 => (proxy.clone(), 1..6_usize).prop_map(|(p, n)| Op::Hear(p, n)),
        6 => (server.clone(), 1..6_usize).prop_map(|(s, n)| Op::Serve(s, n)),
        9 => Just(Op::Flush),
        1 => proxy.clone().prop_map(Op::Cut),
        3 => proxy.clone().prop_map(Op::Dial),
        1 => proxy.clone().prop_map(Op::Freeze),
        2 => proxy.clone().prop_map(Op::Thaw),
        1 => proxy.clone().prop_map(Op::Restart),
        2 => proxy.clone().prop_map(Op::Observe),
        1 => proxy.prop_map(Op::Replace),
        1 => server.clone().prop_map(Op::CutServer),
        3 => server.clone().prop_map(Op::DialServer),
        6 => server.clone().prop_map(Op::Close),
        2 => server.clone().prop_map(Op::Open),
        8 => server.prop_map(Op::Remove),
        4 => prop_oneof![Just(100_u64), Just(1_000), Just(6_000), Just(12_000), Just(40_000)].prop_map(Op::Pass),
        1 => Just(Op::TakeOver),
    ]
}

fn runner(cases: u32, shrink: u32) -> TestRunner {
    let config =
        ProptestConfig { cases, max_shrink_iters: shrink, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Runs worlds with one guard left out until somebody is lost; the number of worlds is the limit.
fn run(guard: Guard, cases: u32, shrink: u32) -> Result<(), TestError<Vec<Op>>> {
    runner(cases, shrink).run(&prop::collection::vec(op(), 20..120), |ops| {
        let mut world = World::new(guard);
        for op in ops {
            world.run(op).map_err(TestCaseError::fail)?;
        }
        Ok(())
    })
}

#[test]
fn nobody_is_lost() {
    if let Err(failure) = run(Guard::AllUp, 1_000, 2_000) {
        panic!("{failure}");
    }
}

#[test]
fn every_door_gets_empty_once_everybody_can_be_heard() {
    let worlds = prop::collection::vec(op(), 0..80);
    let result = runner(200, 1_000).run(&worlds, |ops| {
        let mut world = World::new(Guard::AllUp);
        for op in ops {
            world.run(op).map_err(TestCaseError::fail)?;
        }
        world.come_to_rest().map_err(TestCaseError::fail)
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// A property that holds because nothing ever happens would hold without any guard.
#[test]
fn the_worlds_do_remove_servers() {
    let (removed, worlds) = (Cell::new(0), 300);
    runner(worlds, 0)
        .run(&prop::collection::vec(op(), 20..120), |ops| {
            let mut world = World::new(Guard::AllUp);
            for op in ops {
                world.run(op).map_err(TestCaseError::fail)?;
            }
            removed.set(removed.get() + world.removed());
            Ok(())
        })
        .unwrap();
    assert!(removed.get() > worlds / 4, "{} servers removed in {worlds} worlds", removed.get());
}

fn loses_somebody(guard: Guard) {
    let result = run(guard, 5_000, 0);
    assert!(matches!(result, Err(TestError::Fail(..))), "nobody was lost without {guard:?}");
}

#[test]
fn control_without_the_close_step_somebody_is_lost() {
    loses_somebody(Guard::NoConfirmations);
}

#[test]
fn control_believing_an_old_report_somebody_is_lost() {
    loses_somebody(Guard::OldReports);
}

#[test]
fn control_reopening_a_sealed_door_somebody_is_lost() {
    loses_somebody(Guard::ReopenSealed);
}

#[test]
fn control_trusting_an_earlier_leaders_proxies_somebody_is_lost() {
    loses_somebody(Guard::ForgetEarlierLeader);
}
