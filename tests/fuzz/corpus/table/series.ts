@problemName T
@timeStamps false
@classLabel true a b
@data
1,2,3:4,5,?:a
6:7:b
