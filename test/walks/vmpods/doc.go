// Package vmpods has the program that ships run machines that are Pods, with an agent that makes machines of them.
package vmpods
