// Package editing writes policies as people do, with kubectl and the chart as it is installed: what is refused, how it is told, and
// what passes however much is broken.
package editing
