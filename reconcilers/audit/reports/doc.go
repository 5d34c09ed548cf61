// Package reports writes the results of audits as reports of openreports.io, which dashboards and exporters read: for each policy a
// Report in every namespace with violations, and a ClusterReport for objects without a namespace.
//
// A Book is opened before the objects are evaluated, and written after. A report that changed in between may have newer results, for
// example from the next leader, so it is not overwritten, and the audit is repeated.
package reports
