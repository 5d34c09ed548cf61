// Package shipping applies the policies of a release to the cluster and preserves users' edits.
//
// # Field ownership
//
// Shipped policies are applied by server-side apply as field manager "sallyport", never with force. The API server
// records who set each field. A field that another manager changed belongs to that manager and is left out of what is
// applied, until a reset. Everything else follows the release: additions, changes and removals.
//
// A field that a user removed leaves no trace in the object, and would look like a field that is new in this release.
// So each apply records in an annotation which fields the release ships. A field that is in that record and not in
// the object was removed by a user, and stays removed. The name of the annotation contains a hash of what was
// shipped: no two records share a name, and none conflicts with a copy that another manager applies, for example from
// Git. The record is written in the same request as the fields. It counts only if we applied it. Without a record (a
// user replaced the object by a file without it) every missing field counts as removed.
//
// # Owned policies
//
// A policy is ours if it has the label, or fields that we applied. A policy that a user created under a shipped name
// is left alone, even if it is identical: adding the label, or a reset, hands it over. A policy that is no longer
// shipped is deleted if it is exactly what was shipped. Otherwise it becomes the editor's, without our label,
// annotations and fields.
package shipping
