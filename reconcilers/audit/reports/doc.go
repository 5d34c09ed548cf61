// Package reports writes what an audit finds as reports of openreports.io, which dashboards and exporters read: for each policy a
// Report in every namespace with something against it, and a ClusterReport for objects without a namespace.
//
// A Book is opened before the objects are looked at, and written after: a report that has changed in between was written by
// somebody who may know better, such as the next leader, so nothing is written over it and the audit is to be made again.
package reports
