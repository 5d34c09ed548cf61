# METADATA
# title: Toys
# description: What a toy is.
package sallyport.lib.toys

known(toy) if toy.kind == "Pod"
