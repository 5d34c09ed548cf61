// Package keeper loads the policies of the cluster into the gate. It runs in every replica, leading or not.
//
// It connects two packages that must not import each other: catalog, which makes a set of policies from objects without a
// cluster, and facts, which watches what policies read without knowing them.
package keeper
