//! Finds the longest path among the routes of one host, segment by segment.

use super::PathPattern;

/// Routes of one host by their paths.
#[derive(Debug)]
pub(super) struct Tree {
    /// Nodes; the first one is the root. A child comes after its parent.
    nodes: Vec<Node>,
    protects: bool,
}

/// Position after a number of segments.
#[derive(Debug, Default)]
struct Node {
    parent: Option<usize>,
    /// Nodes with one more segment, sorted by that segment.
    children: Vec<(Box<[u8]>, usize)>,
    /// Routes of the path that ends here.
    exact: Vec<usize>,
    /// Routes of all paths with further segments: prefixes that end with a slash.
    below: Vec<usize>,
    /// Routes of the path that ends here and of those with further segments.
    prefix: Vec<usize>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree {
            nodes: vec![Node::default()],
            protects: false,
        }
    }

    /// Adds a route. Routes are added in the order of the file.
    pub(super) fn insert(&mut self, path: &PathPattern, index: usize, protects: bool) {
        self.protects |= protects;
        match path {
            PathPattern::Any => self.nodes[0].prefix.push(index),
            PathPattern::Exact(path) => {
                let node = self.node(path);
                self.nodes[node].exact.push(index);
            }
            PathPattern::Prefix(path) => match path.strip_suffix('/') {
                Some(parent) => {
                    let node = self.node(parent);
                    self.nodes[node].below.push(index);
                }
                None => {
                    let node = self.node(path);
                    self.nodes[node].prefix.push(index);
                }
            },
        }
    }

    /// Returns the first route that fits, the longest path first.
    pub(super) fn find(&self, path: &[u8], fits: &impl Fn(usize) -> bool) -> Option<usize> {
        let (mut node, mut is_whole) = self.deepest(path);
        loop {
            let Node {
                parent,
                exact,
                below,
                prefix,
                ..
            } = &self.nodes[node];
            let first = if is_whole { exact } else { below };
            let mut routes = first.iter().chain(prefix).copied();
            if let Some(route) = routes.find(|index| fits(*index)) {
                return Some(route);
            }
            node = (*parent)?;
            is_whole = false;
        }
    }

    /// Returns whether one of its routes restricts access.
    pub(super) fn protects(&self) -> bool {
        self.protects
    }

    /// Returns the last node on the way of a path, and whether the path ends there.
    fn deepest(&self, path: &[u8]) -> (usize, bool) {
        let mut node = 0;
        let mut rest = path.strip_prefix(b"/");
        while let Some(segments) = rest {
            let end = segments.iter().position(|byte| *byte == b'/');
            let segment = &segments[..end.unwrap_or(segments.len())];
            let Ok(child) = self.child(node, segment) else {
                return (node, false);
            };
            node = child;
            rest = end.map(|end| &segments[end + 1..]);
        }
        (node, true)
    }

    /// Returns the child with a segment, or the place for it among the children.
    fn child(&self, node: usize, segment: &[u8]) -> Result<usize, usize> {
        let children = &self.nodes[node].children;
        let place = children.binary_search_by(|(known, _)| (**known).cmp(segment))?;
        Ok(children[place].1)
    }

    /// Returns the node of a path, which is empty or begins with a slash; adds it if missing.
    fn node(&mut self, path: &str) -> usize {
        let mut node = 0;
        for segment in path.split('/').skip(1) {
            let segment = segment.as_bytes();
            node = match self.child(node, segment) {
                Ok(child) => child,
                Err(place) => {
                    let child = self.nodes.len();
                    self.nodes.push(Node {
                        parent: Some(node),
                        ..Node::default()
                    });
                    self.nodes[node]
                        .children
                        .insert(place, (segment.into(), child));
                    child
                }
            };
        }
        node
    }
}
