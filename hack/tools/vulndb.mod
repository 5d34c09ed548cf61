// The Go database of vulnerabilities, which `make scan` compares the program with. `make update-vulnerabilities` takes the newest.
module sallyport.dev/sallyport/hack/tools/vulndb

go 1.26.0

require golang.org/x/vulndb v0.0.0-20261105234957-e22db6528018
