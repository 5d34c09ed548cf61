// Package shipping brings the policies of a release into the cluster without taking anything from the people who edit them there.
//
// # Whose field is it
//
// Shipped policies are applied by server-side apply, as field manager "sallyport", and never by force. The API server keeps
// for each field who set it. A field that somebody else changed is theirs and is left out of what is applied, until it is
// given back by a reset. Everything else follows the release: what it adds, changes and drops.
//
// A field that somebody removed leaves no trace in the object, and would look like one that is new in this release. So each
// apply writes down, in an annotation, which fields the release ships. What is in that record and not in the object was removed
// by somebody, and stays so. The annotation's name has a hash of what was shipped: so no two records ever share a name, and
// none can be in conflict with a copy that somebody else applies, from Git for instance. It is written together with what it is
// about, in one request, so that there is no moment in which the two differ. A record counts if it was us who applied it.
// Without one (somebody replaced the object by a file that lacks it) every missing field counts as removed.
//
// # Which policies are ours
//
// Those that have the label, or fields that were applied by us. A policy that somebody else made under a shipped name is left
// alone, also if it is the same: adding the label to it, or resetting it, hands it over. A policy that the release does not ship
// any more is deleted if it is exactly what was shipped, and otherwise becomes the editor's: without label, annotations and
// fields of ours.
package shipping
