package engine

// Evaluating Rego needs a deep stack, and a new goroutine would have to grow its stack, by copying, several times for each
// evaluation, which doubled its time. So goroutines are reused.

// idle are the waiting goroutines. Any more end when they are done.
var idle = make(chan chan func(), 64)

// spawn runs an evaluation on another goroutine.
func spawn(f func()) {
	select {
	case work := <-idle:
		work <- f
	default:
		work := make(chan func(), 1) // so that sending does not block
		work <- f
		go serve(work)
	}
}

func serve(work chan func()) {
	for f := range work {
		f()
		select {
		case idle <- work:
		default:
			return
		}
	}
}
