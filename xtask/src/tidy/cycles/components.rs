//! Finds the strongly connected components of a graph, with Tarjan's algorithm.

/// Returns the components of the graph in which node `n` has edges to `edges[n]`.
pub(super) fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        visits: vec![None; edges.len()],
        visited: 0,
        stack: Vec::new(),
        components: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.visits[node].is_none() {
            search.visit(node);
        }
    }
    search.components
}

/// The state of a node that the search has reached.
#[derive(Clone, Copy)]
struct Visit {
    index: usize,
    /// True until the component of the node is complete.
    on_stack: bool,
}

struct Search<'a> {
    edges: &'a [Vec<usize>],
    visits: Vec<Option<Visit>>,
    visited: usize,
    stack: Vec<usize>,
    components: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Visits what `node` reaches and returns the lowest index on the stack among it.
    fn visit(&mut self, node: usize) -> usize {
        let index = self.visited;
        self.visited += 1;
        self.stack.push(node);
        self.visits[node] = Some(Visit {
            index,
            on_stack: true,
        });
        let mut lowest = index;
        for &next in &self.edges[node] {
            match self.visits[next] {
                None => lowest = lowest.min(self.visit(next)),
                Some(visit) if visit.on_stack => lowest = lowest.min(visit.index),
                Some(_) => {}
            }
        }
        if lowest == index {
            self.complete(node);
        }
        lowest
    }

    /// Takes the component that began with `node` from the stack.
    fn complete(&mut self, node: usize) {
        let begin = self.stack.iter().rposition(|on_stack| *on_stack == node);
        let component = self.stack.split_off(begin.unwrap_or_default());
        for &member in &component {
            if let Some(visit) = &mut self.visits[member] {
                visit.on_stack = false;
            }
        }
        self.components.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn found(edges: &[&[usize]], expect: &[&[usize]]) {
        let edges: Vec<_> = edges.iter().map(|edges| edges.to_vec()).collect();
        let mut found = components(&edges);
        found.iter_mut().for_each(|component| component.sort());
        found.sort();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_chain_has_no_cycle() {
        found(&[&[1], &[2], &[]], &[&[0], &[1], &[2]]);
    }

    #[test]
    fn a_ring_is_one_component() {
        found(&[&[1], &[2], &[0]], &[&[0, 1, 2]]);
    }

    #[test]
    fn cycles_that_share_a_node_are_one_component() {
        found(&[&[1], &[0, 2], &[1]], &[&[0, 1, 2]]);
    }

    #[test]
    fn an_edge_in_one_direction_keeps_cycles_apart() {
        found(&[&[1], &[0, 2], &[3], &[2]], &[&[0, 1], &[2, 3]]);
        found(&[&[1], &[0], &[3, 0], &[2, 1]], &[&[0, 1], &[2, 3]]);
    }
}
