// Package keeper keeps the policies of a replica in step with the cluster. It runs in every replica, leading or not.
//
// It is a package of its own because it joins what must not know of each other: catalog, which makes a set of policies out of
// objects and touches no cluster, and facts, which watches what policies read and knows no policy.
package keeper
